"""Trainings that a request waits for: one at a time, and few that wait."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.server.edge.errors import ApiError

# requests that may wait for their turn: what they wait for takes a core for seconds
MOST_WAITING = 4
# weight of the latest training in the mean time of one
_NEWEST = 0.3


class Turn:
    """One training at a time in a process; beyond ``MOST_WAITING`` requests are refused."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._seconds = 1.0

    def check_room(self) -> None:
        """Refuse a training before any work for it.

        Raises:
            ApiError: 429, too many wait.
        """
        if self._waiting >= MOST_WAITING:
            wait = math.ceil(max(1.0, self._seconds * (1 + self._waiting)))
            raise ApiError(
                429,
                f"overloaded: {self._waiting} trainings wait for their turn already; try again in "
                f"{wait} s",
                code="overloaded",
                headers={"retry-after": str(wait)},
            )

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for the turn, and hold it.

        Raises:
            ApiError: 429, too many wait.
        """
        if self._lock.locked():
            self.check_room()
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        started = time.monotonic()
        try:
            yield
        finally:
            self._lock.release()
            self._seconds += _NEWEST * (time.monotonic() - started - self._seconds)


TURN = Turn()
