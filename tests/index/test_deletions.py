"""Deleted indexes and documents: gone everywhere, and for good."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.errors import NotFoundError
from service.index import indexes as indexes_module
from service.index import maintenance
from service.index.indexes import LISTING_SECONDS
from service.index.query import listing
from service.index.reembed import Follower
from service.index.rows.versions import microseconds
from service.index.storage.database import connect, table_names
from tests.conftest import NIGHTLY
from tests.index.processes import HOUR, Replicas, embed, follower, record, run


@run
async def test_an_index_is_listed_once_and_deleted_completely(replicas: Replicas) -> None:
    a, b, c = [await replicas.open(revision) for revision in "abc"]
    await a.create("x", {})
    await a.create("x-2", {})
    for indexes in (b, c):
        await indexes.writable("x")
    assert await a.names() == ["x", "x-2"]
    assert len(await c.generations("x")) == 3
    await b.drop("x")
    assert await c.names() == ["x-2"]
    for indexes in (a, b, c):
        with pytest.raises(NotFoundError):
            await indexes.writable("x")


@run
async def test_remains_of_a_deleted_index_are_not_an_index(replicas: Replicas) -> None:
    a, b = await replicas.open("a"), await replicas.open("b")
    await a.create("x", {})
    former = await b.writable("x")
    await former.put([record("former")])
    await a.database.drop_table((await a.open("x")).table.name)
    for call in (a.open, b.open, a.writable, b.writable, follower(b).build):
        with pytest.raises(NotFoundError):
            await call("x")
    assert await b.create("x", {})
    held = await b.open("x")
    assert (await held.count(), held.identity.uid != former.identity.uid) == (0, True)


@run
async def test_tombstones_are_removed_when_no_copy_can_arrive(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    await indexes.create("x", {})
    index = await indexes.open("x")
    await index.put([record("old"), record("new"), record("kept")])
    await index.tombstone({"old": microseconds() + 1, "new": microseconds() + HOUR})
    await maintenance.purge(index.table, microseconds() + HOUR // 2)
    assert set(await index.updated(["old", "new", "kept"])) == {"new", "kept"}
    assert await index.count() == 1
    # the vector index and the full-text index accept deleted rows
    await maintenance.optimize(index.table)
    assert [head.id for head in (await listing.page(index, "", 10)).heads] == ["kept"]


@run
async def test_an_index_can_be_dropped_during_its_compaction(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    met = 0
    for turn in range(20 if NIGHTLY else 5):
        assert await indexes.create("busy", {})
        index = await indexes.open("busy")
        assert await index.count() == 0
        for written in range(3):
            await index.put([record(str(written))])
        compaction = asyncio.create_task(maintenance.optimize(index.table))
        # the drop begins at some moment of the compaction
        await asyncio.sleep(0.004 * (3 * turn % 10))
        met += not compaction.done()
        await indexes.drop("busy")
        await asyncio.gather(compaction, return_exceptions=True)
    assert met, "no drop met a compaction"
    assert await indexes.create("busy", {})


@pytest.mark.folder
@run
async def test_an_index_whose_creator_ended_can_be_deleted(replicas: Replicas) -> None:
    """A process that is killed leaves the files of a transaction, and no version."""
    a, b = await replicas.open("a"), await replicas.open("a")
    for name in ("x", "y"):
        await a.create(name, {})
        table = (await a.open(name)).table
        files = replicas.path / "indexes" / f"{table.name}.lance"
        shutil.rmtree(files / "_versions")
    assert await b.names() == ["x", "y"]
    # x is created once more
    await b.create("x", {})
    await (await b.open("x")).put([record("d")])
    for name in ("x", "y"):
        await b.drop(name)
        with pytest.raises(NotFoundError):
            await b.drop(name)
    assert await a.names() == await b.names() == []


@pytest.mark.parametrize("step", ["optimize", "fit", "reembed"])
def test_a_deletion_during_background_work_is_no_failure(tmp_path: Path, step: str) -> None:
    async def scenario(replicas: Replicas) -> None:
        a, b = await replicas.open("a"), await replicas.open("b")
        await a.create("x", {})
        await (await a.open("x")).put([record("d")])
        ended = asyncio.Event()
        works: Follower | maintenance.Maintainer

        def dropping(work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def overtaken(*given: Any, **options: Any) -> Any:
                # by another process
                await b.drop("x")
                try:
                    return await work(*given, **options)
                finally:
                    ended.set()

            return overtaken

        with pytest.MonkeyPatch.context() as patch, capture_logs() as said:
            if step == "reembed":
                works = follower(b, dropping(embed))
                works.start()
            else:
                works = maintenance.Maintainer(a, dropping(embed))
                patch.setattr(maintenance, "QUIET_SECONDS", 0.01)
                place, name = (maintenance, step) if step == "optimize" else (a.profiles, "wanted")
                patch.setattr(place, name, dropping(getattr(place, name)))
                works.note("x")
            async with asyncio.timeout(30):
                await ended.wait()
            await asyncio.sleep(0.2)
            await works.close()
        assert [one for one in said if one["log_level"] != "info"] == []

    run(scenario)(tmp_path)


@run
async def test_files_of_a_late_writer_are_not_an_index_and_are_removed(replicas: Replicas) -> None:
    a, b = await replicas.open("a"), await replicas.open("a")
    await a.create("x", {})
    former = await a.open("x")
    await b.open("x")
    await a.drop("x")
    await a.database.create_table(former.table.name, schema=former.schema)
    # b may use a list of tables that is this old
    await asyncio.sleep(LISTING_SECONDS)
    for indexes in (a, b):
        assert await indexes.names() == []
        with pytest.raises(NotFoundError):
            await indexes.open("x")
    assert await b.create("x", {})
    await (await b.open("x")).put([record("new")])
    assert await (await a.open("x")).count() == 1
    assert former.table.name in await table_names(a.database)
    await b.sweep()
    assert [name.split(".")[0] for name in await table_names(a.database)] == ["x"]
    assert await (await a.open("x")).count() == 1


@run
async def test_an_index_is_created_again_over_files_of_a_late_writer(replicas: Replicas) -> None:
    a, b = await replicas.open("a"), await replicas.open("a")
    await a.create("x", {})
    former = await b.open("x")
    await a.drop("x")
    await a.database.create_table(former.table.name, schema=former.schema)
    # b listed the tables a moment ago
    assert await b.create("x", {"year": "integer"})
    assert (await b.open("x")).identity.fields == {"year": "integer"}


@run
async def test_a_list_from_before_a_deletion_is_not_kept(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    await indexes.create("x", {})
    former = await indexes.open("x")
    read, dropped = asyncio.Event(), asyncio.Event()
    reading = indexes.registry.dropped

    async def slow() -> dict[str, float]:
        found = await reading()
        if not read.is_set():
            read.set()
            await dropped.wait()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes.registry, "dropped", slow)
        listing_tables = asyncio.create_task(indexes.tables())
        await read.wait()
        await indexes.drop("x")
        dropped.set()
        await listing_tables
        await indexes.database.create_table(former.table.name, schema=former.schema)
        with pytest.raises(NotFoundError):
            await indexes.open("x")


@run
async def test_an_error_of_a_deleted_table_says_that_the_index_is_gone(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    await indexes.create("x", {})
    await (await indexes.open("x")).put([record("one")])
    index, still = await indexes.open("x"), await indexes.open("x", still=True)
    other = RuntimeError("lance error: Not found: y/indexes/other.0123456789ab.89abcdef.lance/1")
    assert await indexes.registry.deletion(other) is None
    await indexes.drop("x")
    for reading in (index.count(), still.get("one"), index.put([record("two")])):
        with pytest.raises((RuntimeError, ValueError, OSError)) as caught:
            await reading
        assert isinstance(await indexes.registry.deletion(caught.value), NotFoundError)
    assert await indexes.registry.deletion(other) is None


@run
async def test_deleted_tables_are_recorded_while_a_writer_may_write(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    await indexes.create("x", {})
    await indexes.drop("x")
    await indexes.sweep()
    assert len(await indexes.registry.dropped()) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes_module, "KEEP_DROPPED", -1.0)
        await indexes.sweep()
    assert await indexes.registry.dropped() == {}


@run
async def test_many_deletions_leave_few_files_of_their_record(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    tables = [f"x{number}.a.b" for number in range(20)]
    for table in tables:
        await indexes.registry.drop([table])
    assert list(await indexes.registry.dropped()) == tables
    record_of_all = await (await connect(f"{replicas.path}/leases")).open_table("dropped")
    stats: Any = await record_of_all.stats()
    assert stats["fragment_stats"]["num_fragments"] < 10
