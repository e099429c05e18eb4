"""Vectors of any number of texts, while the texts are read: several requests at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from docsplit_client.calls.batches import batches
from docsplit_client.calls.lines import MOST_CHARACTERS, MOST_LINES, TextOutcome

# requests at a time: the service computes one while the next arrives
PARALLEL = 3


def in_threads(
    texts: Iterable[str], send: Callable[[list[str]], list[TextOutcome]], parallel: int
) -> Iterator[TextOutcome]:
    """The outcomes of texts, in their order; reads ``parallel`` requests ahead.

    Raises:
        ValueError: ``parallel`` is below 1.
    """
    _check(parallel)
    parts = batches(texts, len, MOST_LINES, MOST_CHARACTERS)
    running: deque[Future[list[TextOutcome]]] = deque()
    pool = ThreadPoolExecutor(parallel, "docsplit")
    try:
        while True:
            while len(running) < parallel and (part := next(parts, None)) is not None:
                running.append(pool.submit(send, part))
            if not running:
                return
            yield from running.popleft().result()
    finally:
        # what has begun ends with its request
        pool.shutdown(wait=False, cancel_futures=True)


async def in_tasks(
    texts: Iterable[str],
    send: Callable[[list[str]], Coroutine[None, None, list[TextOutcome]]],
    parallel: int,
) -> AsyncIterator[TextOutcome]:
    """``in_threads`` for coroutines."""
    _check(parallel)
    parts = batches(texts, len, MOST_LINES, MOST_CHARACTERS)
    running: deque[asyncio.Task[list[TextOutcome]]] = deque()
    try:
        while True:
            while len(running) < parallel and (part := next(parts, None)) is not None:
                running.append(asyncio.create_task(send(part)))
            if not running:
                return
            for outcome in await running[0]:
                yield outcome
            running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _check(parallel: int) -> None:
    # without a request at a time the texts would seem to have ended
    if parallel < 1:
        raise ValueError("parallel: at least one request at a time")
