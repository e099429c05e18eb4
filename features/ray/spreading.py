"""Spreads work over workers, some of which may be lost for a while or for good."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import CommandError

W = TypeVar("W")
R = TypeVar("R")

# works for each worker, so that it always has a next one
AHEAD = 2
# times that the workers with one work may be lost: the work itself may be the reason
ATTEMPTS = 5


class LostError(Exception):
    """A worker was lost; its work may or may not be done."""


@dataclass(frozen=True, slots=True)
class _Given(Generic[W]):
    """A work that worker number ``worker`` has; ``lost`` workers had it before."""

    work: W
    worker: int
    lost: int


async def spread(
    works: Iterator[W],
    workers: int,
    call: Callable[[int, W], Awaitable[R]],
    revive: Callable[[int], Awaitable[None]],
) -> AsyncIterator[R]:
    """The results of all works, in any order.

    Others repeat the work of a lost worker. It gets work again when it is back.

    Args:
        works: read as workers need them.
        workers: their number; they are named by numbers from 0.
        call: lets a worker do a work. It raises ``LostError`` if the worker is lost.
        revive: returns when a lost worker is back. It raises ``LostError`` if it never will be.

    Raises:
        CommandError: all workers are lost, or one work loses each worker that gets it.
    """
    free = deque(range(workers)) * AHEAD
    left: deque[tuple[W, int]] = deque()
    busy: dict[asyncio.Task[R], _Given[W]] = {}
    absent: dict[asyncio.Task[None], int] = {}
    gone: set[int] = set()
    unread = True
    try:
        while True:
            while free and (left or unread):
                work, lost = left.popleft() if left else (next(works, None), 0)
                if work is None:
                    unread = False
                    break
                given = _Given(work, free.popleft(), lost)
                busy[asyncio.ensure_future(call(given.worker, work))] = given
            if not (busy or left or unread):
                return
            if not busy and not absent:
                raise CommandError("all actors of the cluster were lost: repeat the run")
            waited = [*busy, *absent]
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for back in [task for task in absent if task in done]:
                worker = absent.pop(back)
                if _survived(back):
                    gone.discard(worker)
                    free.extend([worker] * AHEAD)
            for ended in [task for task in busy if task in done]:
                given = busy.pop(ended)
                if _survived(ended):
                    if given.worker not in gone:
                        free.append(given.worker)
                    yield ended.result()
                    continue
                if given.lost + 1 == ATTEMPTS:
                    raise CommandError(
                        f"{ATTEMPTS} actors in turn were lost with the same documents: their "
                        "nodes' logs say why, perhaps too little memory"
                    )
                left.append((given.work, given.lost + 1))
                if given.worker not in gone:
                    gone.add(given.worker)
                    free = deque(worker for worker in free if worker != given.worker)
                    absent[asyncio.ensure_future(revive(given.worker))] = given.worker
    finally:
        for task in (*busy, *absent):
            task.cancel()


def _survived(task: asyncio.Task[R]) -> bool:
    """Whether a task's worker was not lost; raises the task's other errors."""
    error = task.exception()
    if error is None or isinstance(error, LostError):
        return error is None
    raise error
