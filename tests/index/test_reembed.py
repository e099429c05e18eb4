"""Rules between generations of an index: the later write stands, what is deleted stays deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from service.documents.embedder import Document, EmptyInputError
from service.index import indexes as indexes_module
from service.index import maintenance, reembed
from service.index.documents import Index, microseconds
from service.index.faults import BuildingError, ConflictError, NotFoundError
from service.index.follower import Follower
from service.index.generations import Generation
from service.index.indexes import LISTING_SECONDS, Indexes, Model, connect, table_names
from service.index.record import Encoding, Record

HOUR = 3_600_000_000


def embedded(text: str) -> Document:
    """A document of one window whose vector tells its length."""
    vector = np.array([1, len(text), 0, 0], dtype=np.float32)
    window = SimpleNamespace(end=len(text))
    made = SimpleNamespace(vector=lambda: vector, matrix=lambda: vector[None], windows=[window])
    return cast(Document, made)


async def embed(texts: Sequence[str]) -> list[Document]:
    return [embedded(text) for text in texts]


def record(name: str, text: str = "text") -> Record:
    vector = np.array([1, 0, 0, 0], dtype=np.float32)
    return Record(name, text, None, {"n": 1}, ["b"], Encoding(vector, vector[None], [len(text)]))


class Replicas:
    """Processes of three revisions on one path; ``a`` has created the index."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self, revision: str) -> Indexes:
        databases = [await connect(f"{self._path}/{part}") for part in ("indexes", "leases")]
        return Indexes(databases[0], databases[1], Model("model", revision * 64, 4))

    async def pair(self) -> tuple[Index, Index]:
        """The complete generation of ``a``, and the empty one of ``b``."""
        a, b = await self.open("a"), await self.open("b")
        await a.create("x", {})
        return await a.open("x"), await b.writable("x")


def follower(indexes: Indexes, embed: reembed.Embed = embed) -> Follower:
    return Follower(indexes, embed, lambda *_: None, lambda _: None)


async def copy(own: Index, other: Index, embed: reembed.Embed = embed) -> int:
    return await reembed.catch_up(own, other, embed, lambda _: None)


async def text(index: Index, name: str) -> str | None:
    return (await index.get(name)).text if await index.has(name) else None


def run(test: Callable[[Replicas], Awaitable[None]]) -> Callable[[Path], None]:
    """A test in an event loop, on replicas in a folder of its own."""

    def started(tmp_path: Path) -> None:
        async def main() -> None:
            await test(Replicas(tmp_path))

        asyncio.run(main())

    started.__name__ = test.__name__
    return started


@run
async def test_a_pass_copies_what_is_missing_or_older(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    await a.merge([record("new", "from a"), record("old", "from a"), record("same")], [5, 5, 5])
    await b.merge([record("new", "own"), record("same", "own")], [9, 5])
    await b.merge([record("old", "own")], [4])
    assert await copy(b, a) == 1
    assert [await text(b, name) for name in ("new", "old", "same")] == ["own", "from a", "own"]
    assert (await b.updated(["old"])) == {"old": 5}
    held = await b.get("old")
    assert (held.metadata, held.links) == ({"n": 1}, ["b"])
    assert held.vector[1] > 0.9
    assert await copy(b, a) == 0
    # and back: only what b has later
    assert await copy(a, b) == 1
    assert await text(a, "new") == "own"


@run
async def test_a_document_deleted_while_it_is_copied_stays_deleted(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    indexes = await replicas.open("a")
    await a.put([record("gone"), record("kept")])

    async def deleting(texts: Sequence[str]) -> list[Document]:
        await indexes.bury("x", a.identity.uid, ["gone"])
        return await embed(texts)

    assert await copy(b, a, deleting) == 2
    assert [await b.has(name) for name in ("gone", "kept")] == [False, True]
    assert not await a.has("gone")
    # no generation brings it back, and neither counts it
    assert (await copy(b, a), await copy(a, b)) == (0, 0)
    assert [await index.count() for index in (a, b)] == [1, 1]
    # a caller does
    await b.put([record("gone", "again")])
    assert await copy(a, b) == 1
    assert await text(a, "gone") == "again"


@run
async def test_a_deletion_reaches_a_generation_that_is_just_created(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    deleting, c = await replicas.open("a"), await replicas.open("c")
    await a.put([record("gone"), record("kept")])
    look = deleting.generations

    async def late(name: str) -> list[Generation]:
        found = await look(name)
        if len(found) == 2:
            # after the look and before the deletion
            await copy(await c.writable(name), a)
        return found

    deleting.generations = late  # type: ignore[method-assign]
    await deleting.bury("x", a.identity.uid, ["gone"])
    created = await c.writable("x")
    for index in (a, b, created):
        assert not await index.has("gone")
    assert await created.has("kept")


@run
async def test_a_document_written_while_its_copy_is_embedded_stays(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    await a.put([record("x", "stale"), record("y", "stale")])

    async def writing(texts: Sequence[str]) -> list[Document]:
        await b.put([record("x", "fresh")])
        return await embed(texts)

    await copy(b, a, writing)
    assert [await text(b, name) for name in ("x", "y")] == ["fresh", "stale"]


@run
async def test_a_write_stands_over_one_of_a_clock_that_is_ahead(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    ahead = microseconds() + HOUR
    await a.merge([record("x", "ahead"), record("y", "ahead")], [ahead, ahead])
    await a.put([record("x", "later")])
    assert await text(a, "x") == "later"
    await (await replicas.open("b")).bury("x", a.identity.uid, ["y"])
    await copy(b, a)
    assert [await text(b, name) for name in ("x", "y")] == ["later", None]
    assert await text(a, "y") is None


@run
async def test_an_interrupted_pass_goes_on(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    await a.put([record(f"{i:04}") for i in range(600)])
    seen: list[int] = []

    async def failing(texts: Sequence[str]) -> list[Document]:
        if sum(seen) >= 400:
            raise ConnectionError
        seen.append(len(texts))
        return await embed(texts)

    with pytest.raises(ConnectionError):
        await copy(b, a, failing)
    done = await b.count()
    assert 0 < done < 600
    seen.clear()
    assert await copy(b, a, lambda texts: (seen.append(len(texts)), embed(texts))[1]) == 600 - done
    assert sum(seen) == 600 - done
    assert max(seen) <= reembed.CHUNK
    assert await b.count() == 600


@run
async def test_a_document_without_tokens_is_kept(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    await a.put([record("odd", "\u200b"), record("even")])

    async def strict(texts: Sequence[str]) -> list[Document]:
        for index, given in enumerate(texts):
            if given == "\u200b":
                raise EmptyInputError(index)
        return await embed(texts)

    await copy(b, a, strict)
    assert await text(b, "odd") == "\u200b"
    windows = (await b.windows(["odd"]))["odd"]
    assert (windows.ends, len(windows.vectors)) == ([1], 1)
    assert await text(b, "even") == "text"


@run
async def test_a_generation_is_read_once_it_is_complete(replicas: Replicas) -> None:
    a, b = await replicas.open("a"), await replicas.open("b")
    assert await a.create("x", {"year": "integer"})
    await (await a.open("x")).put([record(name) for name in "abc"])
    with pytest.raises(BuildingError, match="0 of 3 documents"):
        await b.open("x")
    assert not await b.create("x", {"year": "integer"})
    with pytest.raises(ConflictError, match="other fields"):
        await b.create("x", {})
    await (await b.writable("x")).put([record("a")])
    with pytest.raises(BuildingError, match="1 of 3 documents"):
        await b.open("x")
    built = await follower(b).build("x")
    assert await built.count() == 3
    assert built.identity.uid == (await a.open("x")).identity.uid
    # every process of that revision reads it, and no other table of that name
    other = await replicas.open("b")
    assert (await other.open("x")).identity == built.identity
    await a.drop_generation("x", "b" * 12)
    await b.writable("x")
    with pytest.raises(BuildingError):
        await other.open("x")


@run
async def test_a_generation_completes_while_others_are_written_to(replicas: Replicas) -> None:
    a, _ = await replicas.pair()
    await a.put([record("first")])
    written: list[str] = []

    async def busy(texts: Sequence[str]) -> list[Document]:
        # ids before those that the pass has read, so that each pass misses one
        written.append(f"a{999 - len(written)}")
        await a.put([record(written[-1])])
        return await embed(texts)

    b = await replicas.open("b")
    built = await follower(b, busy).build("x")
    assert await built.has("first")
    assert not await built.has(written[-1])
    # which the next look finds
    assert await copy(built, a) == 1


@run
async def test_what_only_a_former_generation_has_is_copied_before_it_goes(
    replicas: Replicas,
) -> None:
    a, b = await replicas.open("a"), await replicas.open("b")
    await a.create("x", {})
    with pytest.raises(ConflictError, match="is served"):
        await a.drop_generation("x", "a" * 64)
    await b.writable("x")
    with pytest.raises(ConflictError, match="not complete"):
        await b.drop_generation("x", "a" * 64)
    await follower(b).build("x")
    await (await a.open("x")).put([record("late")])
    with pytest.raises(NotFoundError, match="no generation"):
        await b.drop_generation("x", "c" * 64)
    assert not await (await b.open("x")).has("late")
    await follower(b).settle("x")
    await b.drop_generation("x", "a" * 64)
    assert await (await b.open("x")).has("late")
    assert len(await b.generations("x")) == 1


@run
async def test_an_index_is_listed_once_and_deleted_whole(replicas: Replicas) -> None:
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
async def test_what_is_left_of_a_deleted_index_is_none(replicas: Replicas) -> None:
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
async def test_deletions_are_forgotten_once_nothing_can_come_back(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    await indexes.create("x", {})
    index = await indexes.open("x")
    await index.put([record("old"), record("new"), record("kept")])
    await index.bury({"old": microseconds() + 1, "new": microseconds() + HOUR})
    await index.purge(microseconds() + HOUR // 2)
    assert set(await index.updated(["old", "new", "kept"])) == {"new", "kept"}
    assert await index.count() == 1
    # the vector index and the full-text index take deleted rows
    await maintenance.optimize(index.table)
    assert [row["id"] for row in await index.page("", 10)] == ["kept"]


@run
async def test_a_lease_passes_on_when_it_has_expired(replicas: Replicas) -> None:
    one, two = [(await replicas.open("a")).leases for _ in range(2)]
    assert await one.acquire("work", 600)
    assert await one.acquire("work", 600)
    assert not await two.acquire("work", 600)
    await one.acquire("work", -1)
    assert await two.acquire("work", 600)
    assert not await one.acquire("work", 600)
    assert await two.acquire("work", 2)
    async with two.kept("work", 2):
        await asyncio.sleep(2.5)
        assert not await one.acquire("work", 600)
    assert await one.acquire("work", 600)


@run
async def test_processes_that_build_at_once_build_one(replicas: Replicas) -> None:
    a = await replicas.open("a")
    await a.create("x", {})
    await (await a.open("x")).put([record(f"{i:03}") for i in range(100)])
    processes: list[Any] = [await replicas.open("b") for _ in range(3)]
    built = await asyncio.gather(*(follower(process).build("x") for process in processes))
    assert len({index.identity.generation for index in built}) == 1
    assert len(await a.generations("x")) == 2
    assert await built[0].table.count_rows() == 100


@run
async def test_an_index_is_dropped_beside_its_compaction(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    met = 0
    for turn in range(20):
        assert await indexes.create("busy", {})
        index = await indexes.open("busy")
        assert await index.count() == 0
        for written in range(3):
            await index.put([record(str(written))])
        compaction = asyncio.create_task(maintenance.optimize(index.table))
        # the drop begins somewhere within the compaction
        await asyncio.sleep(0.004 * (turn % 10))
        met += not compaction.done()
        await indexes.drop("busy")
        await asyncio.gather(compaction, return_exceptions=True)
    assert met, "no drop met a compaction"
    assert await indexes.create("busy", {})


@run
async def test_what_a_late_writer_leaves_is_no_index_and_is_removed(replicas: Replicas) -> None:
    a, b = await replicas.open("a"), await replicas.open("a")
    await a.create("x", {})
    former = await a.open("x")
    await b.open("x")
    await a.drop("x")
    await a.database.create_table(former.table.name, schema=former.schema)
    # b may take its last look at the tables for the latest that long
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
async def test_deleted_tables_are_remembered_while_a_writer_may_come(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    await indexes.create("x", {})
    await indexes.drop("x")
    await indexes.sweep()
    assert len(await indexes.registry.dropped()) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes_module, "KEEP_DROPPED", -1.0)
        await indexes.sweep()
    assert await indexes.registry.dropped() == {}
