"""Tokenising threads, which clients use in turn."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from service import precedence
from service.embedding.batching import clients
from service.executors import Pool


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


T = TypeVar("T")

# Work on one text. It pauses where other texts may take their turn.
Steps = Generator[None, None, T]


# Texts of so many characters take some milliseconds; a step by itself costs two changes of thread.
_CHARACTERS = 16_384


def in_succession(works: Iterable[tuple[str, Steps[T]]]) -> Steps[list[T]]:
    """Work on several texts, and pause after every ``_CHARACTERS`` of short ones.

    Args:
        works: texts, each with its work.
    """
    results: list[T] = []
    since = 0
    for text, work in works:
        if since >= _CHARACTERS:
            yield
            since = 0
        results.append((yield from work))
        since += len(text)
    return results


class Tokenising:
    """A few threads that carry out steps."""

    def __init__(self, threads: int) -> None:
        self._semaphore = FairSemaphore(threads)
        self._pool = Pool("tokenise", threads)

    async def carry_out(self, steps: Steps[T]) -> T:
        """Run each step in a thread, clients in turn; a cancelled request takes no further step."""
        loop = asyncio.get_running_loop()
        while True:
            async with self._semaphore.turn():
                ended = await loop.run_in_executor(self._pool, _step, steps)
            if ended is not None:
                return ended.result
            await precedence.pause()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(cancel_futures=True)


class _Ended(Generic[T]):
    def __init__(self, result: T) -> None:
        self.result = result


def _step(steps: Steps[T]) -> _Ended[T] | None:
    """Run to the next pause; return the result at the end."""
    try:
        next(steps)
    except StopIteration as ended:
        return _Ended(ended.value)
    return None
