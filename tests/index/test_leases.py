"""Leases of processes whose clocks are minutes apart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from service.index import indexes as indexes_module
from service.index import leases, sql
from service.index.leases import SILENT_SECONDS, Leases, Silence
from service.index.rows.keyed import Row
from service.index.sql import Sql
from service.index.storage.database import connect
from tests.integrity.stores import open_indexes


class Clocks:
    """The wall clock of the process that acts, and the clocks that measure its waits.

    Attributes:
        ahead: seconds by which the wall clock of the acting process is ahead.
        passed: seconds that have passed for all processes.
    """

    def __init__(self) -> None:
        self.ahead = self.passed = 0.0

    def time(self) -> float:
        return 1.6e9 + self.passed + self.ahead


class Process:
    """A process with leases and a wall clock of its own."""

    def __init__(self, clocks: Clocks, own: Leases, ahead: float) -> None:
        self._clocks, self._leases, self._ahead = clocks, own, ahead
        own._silence = Silence(lambda: clocks.passed)

    async def acquire(self, seconds: float = 600) -> bool:
        self._clocks.ahead = self._ahead
        return await self._leases.acquire("work", seconds)

    async def release(self) -> None:
        self._clocks.ahead = self._ahead
        await self._leases.release("work")


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(leases, "time", made)
    monkeypatch.setattr(leases, "time", made)
    return made


async def process(clocks: Clocks, folder: Path, ahead: float = 0) -> Process:
    return Process(clocks, Leases(await connect(str(folder))), ahead)


@pytest.mark.parametrize("ahead", [-3600, 3600])
async def test_a_wrong_clock_takes_no_lease_that_is_renewed(
    tmp_path: Path, clocks: Clocks, ahead: float
) -> None:
    holder, other = await process(clocks, tmp_path), await process(clocks, tmp_path, ahead)
    assert await holder.acquire()
    for _ in range(5):
        assert not await other.acquire()
        clocks.passed += SILENT_SECONDS - 1
        assert await holder.acquire()


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
async def test_a_process_with_a_wrong_clock_keeps_its_lease_no_longer_than_others(
    tmp_path: Path, clocks: Clocks, ahead: float
) -> None:
    ended, other = await process(clocks, tmp_path, ahead), await process(clocks, tmp_path)
    assert await ended.acquire(30)
    assert not await other.acquire(30)
    clocks.passed += SILENT_SECONDS - 1
    assert not await other.acquire(30)
    clocks.passed += 30
    assert await other.acquire(30)
    assert not await ended.acquire(30)


async def test_the_time_before_a_process_began_counts(tmp_path: Path, clocks: Clocks) -> None:
    assert await (await process(clocks, tmp_path)).acquire()
    clocks.passed += 3600
    later = await process(clocks, tmp_path)
    assert not await later.acquire()
    clocks.passed += SILENT_SECONDS
    assert await later.acquire()


async def test_one_of_two_processes_takes_the_lease_of_one_that_ended(
    tmp_path: Path, clocks: Clocks
) -> None:
    assert await (await process(clocks, tmp_path)).acquire()
    others = [await process(clocks, tmp_path) for _ in range(2)]
    assert not any([await other.acquire() for other in others])
    clocks.passed += 600
    assert sum(await asyncio.gather(*(other.acquire() for other in others))) == 1


async def test_a_late_renewal_takes_no_released_lease_back(
    tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Leases(await connect(str(tmp_path)))
    holder, other = Process(clocks, own, 0), await process(clocks, tmp_path)
    assert await holder.acquire()
    wrote, on_its_way, go_on = own._table.put, asyncio.Event(), asyncio.Event()

    async def late(*rows: object, replace: bool | Sql = True) -> None:
        monkeypatch.setattr(own._table, "put", wrote)
        on_its_way.set()
        await go_on.wait()
        await wrote(*rows, replace=replace)  # type: ignore[arg-type]

    monkeypatch.setattr(own._table, "put", late)
    renewal = asyncio.create_task(own.acquire("work", 600))
    await on_its_way.wait()
    await own.release("work")
    go_on.set()
    await renewal
    assert await other.acquire()


@pytest.mark.parametrize("step", ["write", "read", "work", "release"])
async def test_a_process_that_ends_in_order_hands_its_lease_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """At whatever step it is stopped, and even if LanceDB goes on with a write."""

    own, other = [Leases(await connect(str(tmp_path))) for _ in range(2)]
    table, reached = own._table, asyncio.Event()
    # the shared table exists before
    assert await own.acquire("another", 600)
    put, get = table.put, table.get
    writes, reads = count(), count()
    ongoing: list[asyncio.Future[None]] = []

    async def slow(at: str, now: str) -> None:
        if at == now:
            reached.set()
            await asyncio.sleep(0.1)

    async def slow_put(*rows: Mapping[str, object], replace: bool | Sql = True) -> None:
        async def write() -> None:
            await slow(step, "release" if next(writes) else "write")
            await put(*rows, replace=replace)

        # LanceDB ends a write whose caller is cancelled
        ongoing.append(asyncio.ensure_future(write()))
        await asyncio.shield(ongoing[-1])

    async def slow_get(key: str, columns: list[str] | None = None) -> Row | None:
        await slow(step, "read" if next(reads) == 1 else "")
        return await get(key, columns)

    monkeypatch.setattr(table, "put", slow_put)
    monkeypatch.setattr(table, "get", slow_get)

    async def work() -> None:
        assert await own.acquire("work", 600)
        async with own.kept("work", 600):
            await slow(step, "work")

    working = asyncio.create_task(work())
    await reached.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await asyncio.gather(*ongoing)
    assert await other.acquire("work", 600)


async def former(old: Leases, seconds: float) -> bool:
    """Acquire a lease as earlier versions do."""
    now = time.time()
    row = {"name": "work", "holder": old._holder, "expires": now + seconds}
    free = sql.some(
        sql.compare("target.expires", "<", now), sql.compare("target.holder", "=", old._holder)
    )
    await old._table.put(row, replace=free)
    held = await old._table.get("work")
    return held is not None and held["holder"] == old._holder


async def test_earlier_versions_and_this_one_respect_the_leases_of_each_other(
    tmp_path: Path,
) -> None:
    new, old = [Leases(await connect(str(tmp_path))) for _ in range(2)]
    for _ in range(2):
        assert await new.acquire("work", 600)
        assert not await former(old, 600)
    await new.release("work")
    for _ in range(2):
        assert await former(old, 600)
        assert not await new.acquire("work", 600)
    await old.release("work")
    assert await new.acquire("work", 600)


async def test_a_process_that_creates_an_index_renews_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes_module, "_STRUCTURE_SECONDS", 0.3)

    indexes = await open_indexes(tmp_path)
    table = indexes.leases._table
    expiries: set[float] = set()
    async with indexes.exclusive("x"), asyncio.timeout(30):
        while len(expiries) < 3:
            expiries |= {row["expires"] for row in await table.rows()}
            await asyncio.sleep(0.05)
    assert [row["expires"] for row in await table.rows()] == [0]
