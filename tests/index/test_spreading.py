"""Work spread over workers that are lost and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from features.ray.spreading import AHEAD, ATTEMPTS, LostError, spread
from service.errors import CommandError

WORKS = 40


@dataclass
class Workers:
    """Workers that double numbers; each waits a turn of the loop.

    Attributes:
        loses: whether a worker is lost with a work.
        returns: whether a lost worker comes back.
        done: works by worker.
        most: works that one worker had at the same time.
    """

    count: int
    loses: Callable[[int, int], bool] = lambda *_: False
    returns: Callable[[int], bool] = lambda _: True
    done: dict[int, list[int]] = field(default_factory=dict)
    revived: list[int] = field(default_factory=list)
    read: int = 0
    most: int = 0
    _now: dict[int, int] = field(default_factory=dict)

    async def call(self, worker: int, work: int) -> int:
        self._now[worker] = self._now.get(worker, 0) + 1
        self.most = max(self.most, self._now[worker])
        await asyncio.sleep(0)
        self._now[worker] -= 1
        if self.loses(worker, work):
            raise LostError
        self.done.setdefault(worker, []).append(work)
        return 2 * work

    async def revive(self, worker: int) -> None:
        self.revived.append(worker)
        await asyncio.sleep(0)
        if not self.returns(worker):
            raise LostError

    def run(self, works: Iterable[int] = range(WORKS)) -> list[int]:
        def counted() -> Iterable[int]:
            for work in works:
                self.read += 1
                yield work

        async def all_() -> list[int]:
            given = spread(iter(counted()), self.count, self.call, self.revive)
            return [result async for result in given]

        return asyncio.run(all_())


def doubled() -> list[int]:
    return [2 * work for work in range(WORKS)]


def test_all_workers_do_all_works_once() -> None:
    workers = Workers(3)
    assert sorted(workers.run()) == doubled()
    assert sorted(workers.done) == [0, 1, 2]
    assert sorted(work for own in workers.done.values() for work in own) == list(range(WORKS))
    assert workers.most == AHEAD
    assert workers.revived == []
    assert Workers(3).run([]) == []


def test_others_take_the_works_of_a_lost_worker() -> None:
    workers = Workers(3, loses=lambda worker, _: worker == 1, returns=lambda _: False)
    assert sorted(workers.run()) == doubled()
    assert sorted(workers.done) == [0, 2]
    assert workers.revived == [1]


def test_a_worker_that_is_back_gets_work_again() -> None:
    lost: set[int] = set()

    def once(worker: int, _: int) -> bool:
        first = worker not in lost
        lost.add(worker)
        return first

    # even if all of them are away at the same time
    workers = Workers(2, loses=once)
    assert sorted(workers.run()) == doubled()
    assert sorted(workers.done) == [0, 1]
    assert sorted(workers.revived) == [0, 1]


def test_a_run_without_workers_ends() -> None:
    with pytest.raises(CommandError, match="all actors"):
        Workers(2, loses=lambda *_: True, returns=lambda _: False).run()


def test_a_work_that_loses_every_worker_ends_the_run() -> None:
    workers = Workers(2, loses=lambda _, work: work == 3)
    with pytest.raises(CommandError, match=f"{ATTEMPTS} actors in turn"):
        workers.run()


def test_an_error_of_a_work_ends_the_run_before_all_is_read() -> None:
    def fails(_: int, work: int) -> bool:
        if work == 3:
            raise ValueError("3")
        return False

    workers = Workers(2, loses=fails)
    with pytest.raises(ValueError, match="3"):
        workers.run()
    assert workers.read < WORKS // 2
