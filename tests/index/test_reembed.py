"""Rules between generations of an index: the later write wins, deletions stay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from service.embedding.embedder import Document, EmptyInputError, UnusableInputError
from service.errors import BuildingError, ConflictError, NotFoundError
from service.index import commits, reembed
from service.index.documents import windows_of
from service.index.indexes import Generation
from service.index.leases import SILENT_SECONDS, Silence
from service.index.rows.versions import microseconds
from tests.index.processes import HOUR, Replicas, copy, embed, follower, record, run, text


@run
async def test_a_pass_copies_missing_and_older_documents(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    await a.merge([record("new", "from a"), record("old", "from a"), record("same")], [5, 5, 5])
    await b.merge([record("new", "own"), record("same", "own")], [9, 5])
    await b.merge([record("old", "own")], [4])
    assert await copy(b, a) == 1
    assert [await text(b, name) for name in ("new", "old", "same")] == ["own", "from a", "own"]
    assert (await b.updated(["old"])) == {"old": 5}
    held = await b.get("old")
    assert (json.loads(held.metadata), held.links) == ({"n": 1}, ["b"])
    assert held.vector[1] > 0.9
    assert await copy(b, a) == 0
    # and back: only the later documents of b
    assert await copy(a, b) == 1
    assert await text(a, "new") == "own"


@run
async def test_a_document_deleted_while_it_is_copied_stays_deleted(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    indexes = await replicas.open("a")
    await a.put([record("gone"), record("kept")])

    async def deleting(texts: Sequence[str]) -> list[Document]:
        await commits.delete_everywhere(indexes, "x", a.identity.uid, ["gone"])
        return await embed(texts)

    assert await copy(b, a, deleting) == 2
    assert [await b.has(name) for name in ("gone", "kept")] == [False, True]
    assert not await a.has("gone")
    # no generation restores it, and neither counts it
    assert (await copy(b, a), await copy(a, b)) == (0, 0)
    assert [await index.count() for index in (a, b)] == [1, 1]
    # a client does
    await b.put([record("gone", "again")])
    assert await copy(a, b) == 1
    assert await text(a, "gone") == "again"


@run
async def test_a_deletion_reaches_a_generation_that_is_just_created(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    deleting, c = await replicas.open("a"), await replicas.open("c")
    await a.put([record("gone"), record("kept")])
    look = deleting.generations

    async def late(name: str, *, still: bool = False) -> list[Generation]:
        found = await look(name, still=still)
        if len(found) == 2:
            # after the listing and before the deletion
            await copy(await c.writable(name), a)
        return found

    deleting.generations = late  # type: ignore[method-assign]
    await commits.delete_everywhere(deleting, "x", a.identity.uid, ["gone"])
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
async def test_a_write_replaces_one_from_a_fast_clock(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    ahead = microseconds() + HOUR
    await a.merge([record("x", "ahead"), record("y", "ahead")], [ahead, ahead])
    await a.put([record("x", "later")])
    assert await text(a, "x") == "later"
    await commits.delete_everywhere(await replicas.open("b"), "x", a.identity.uid, ["y"])
    await copy(b, a)
    assert [await text(b, name) for name in ("x", "y")] == ["later", None]
    assert await text(a, "y") is None


@run
async def test_the_next_pass_continues_an_interrupted_one(replicas: Replicas) -> None:
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

    async def counting(texts: Sequence[str]) -> list[Document]:
        seen.append(len(texts))
        return await embed(texts)

    assert await copy(b, a, counting) == 600 - done
    assert sum(seen) == 600 - done
    assert max(seen) < reembed.COMMIT_DOCUMENTS + reembed.CHUNK
    assert await b.count() == 600


@run
async def test_a_document_without_tokens_is_kept(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    await a.put([record("odd", "\u200b"), record("even")])

    async def strict(texts: Sequence[str]) -> list[Document | UnusableInputError]:
        documents = await embed(texts)
        return [
            EmptyInputError(index) if given == "\u200b" else document
            for index, (given, document) in enumerate(zip(texts, documents, strict=True))
        ]

    await copy(b, a, strict)
    assert await text(b, "odd") == "\u200b"
    windows = await windows_of(b, "odd")
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
    # every process of that revision reads it, and reads no other table of that name
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
    # the next pass finds it
    assert await copy(built, a) == 1


@run
async def test_a_generation_is_copied_before_its_deletion(
    replicas: Replicas,
) -> None:
    a, b = await replicas.open("a"), await replicas.open("b")
    await a.create("x", {})
    with pytest.raises(ConflictError, match="serves this generation"):
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
async def test_another_process_gets_an_expired_lease(replicas: Replicas) -> None:
    one, two = [(await replicas.open("a")).leases for _ in range(2)]
    passed = 0.0
    two._silence = Silence(lambda: passed)
    assert await one.acquire("work", 600)
    assert await one.acquire("work", 600)
    assert not await two.acquire("work", 600)
    await one.acquire("work", -1)
    assert not await two.acquire("work", 600)
    passed += SILENT_SECONDS
    assert await two.acquire("work", 600)
    assert not await one.acquire("work", 600)
    assert await two.acquire("work", 2)
    async with two.kept("work", 2):
        await asyncio.sleep(2.5)
        assert not await one.acquire("work", 600)
    assert await one.acquire("work", 600)


@run
async def test_simultaneous_processes_build_one_generation(replicas: Replicas) -> None:
    a = await replicas.open("a")
    await a.create("x", {})
    await (await a.open("x")).put([record(f"{i:03}") for i in range(100)])
    processes: list[Any] = [await replicas.open("b") for _ in range(3)]
    built = await asyncio.gather(*(follower(process).build("x") for process in processes))
    assert len({index.identity.generation for index in built}) == 1
    assert len(await a.generations("x")) == 2
    assert await built[0].table.count_rows() == 100
