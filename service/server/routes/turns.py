"""Long work that a request waits for: one at a time, with a short queue."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.errors import OverloadedError

# requests that may wait for their turn: each takes a core for seconds
MOST_WAITING = 4
# weight of the latest one in the average time of one
_NEWEST = 0.3


class Turn:
    """One piece of work at a time in a process; refuses requests beyond ``MOST_WAITING``.

    Args:
        work: its kind, in the plural, for messages.
    """

    def __init__(self, work: str) -> None:
        self._work = work
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._seconds = 1.0

    def check_room(self) -> None:
        """Refuse a request before any work for it begins.

        Raises:
            OverloadedError: too many requests wait.
        """
        if self._waiting >= MOST_WAITING:
            raise OverloadedError(
                max(1.0, self._seconds * (1 + self._waiting)),
                f"overloaded: {self._waiting} {self._work} are waiting already; try again",
            )

    @asynccontextmanager
    async def taken(self, *, patient: bool = False) -> AsyncIterator[None]:
        """Wait for the turn, and keep it during the block.

        Args:
            patient: whether to wait behind any number of requests, as a job may.

        Raises:
            OverloadedError: too many requests wait.
        """
        if self._lock.locked() and not patient:
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


TURN = Turn("trainings")
