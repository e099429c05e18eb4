"""A limit on parallel work that serves clients in turn."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.embedding.batching import clients


class FairSemaphore:
    """A semaphore whose places go to waiting clients in turn; for one event loop.

    Args:
        places: how many tasks hold a place at once.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[clients.Client, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold a place for the client of the task."""
        if self._free:
            self._free -= 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self._leave()

    async def _wait(self) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(clients.current(), deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        while self._waiting:
            client = next(iter(self._waiting))
            queue = self._waiting.pop(client)
            first = queue.popleft()
            if queue:
                self._waiting[client] = queue
            if not first.done():
                first.set_result(None)
                return
        self._free += 1
