"""The former bundle answers until its successor has embedded an index, and can answer again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from service.embedding.embedder import Document
from service.errors import BuildingError, ConflictError, OvertakenError
from service.index import commits, reembed
from service.index.commits import Upsert, Writer
from service.index.documents import Index
from service.index.indexes import Indexes, Model
from service.index.reembed import Follower, Pace
from service.index.rows.schema import Identity
from tests.index.processes import embed, record
from tests.index.test_bundle_names import NEWER, SMALL, served

FORMER = Model(":former", SMALL.revision, 4, former=True)
BACK = Model(":former", NEWER.revision, 4, former=True)


class Process:
    """A service with a bundle and its former one, without a server.

    Args:
        indexes: of the process.
        carries: whether it copies what it wrote before it acknowledges it, as services do.
    """

    def __init__(self, indexes: Indexes, *, carries: bool = True) -> None:
        self.indexes = indexes
        self.embed = embed
        self.carries = carries
        self.follower = Follower(indexes, lambda _: self._embed, lambda *_: None, lambda _: None)
        self.writer = Writer(indexes, "x", lambda _: None)

    async def _embed(self, texts: Sequence[str]) -> list[Document]:
        return await self.embed(texts)

    async def write(self, *names: str, made_for: Index | None = None) -> None:
        index = made_for or await self.indexes.writable("x")
        upsert = Upsert(await index.rows([record(name, name) for name in names]))
        await self.writer.write(index.identity.uid, upsert)
        if self.carries:
            await self.follower.carry("x", upsert.generation, names)

    async def revision(self) -> str:
        return (await self.indexes.open("x")).identity.revision

    async def has(self, *names: str) -> list[bool]:
        index = await self.indexes.open("x")
        return [await index.has(name) for name in names]

    async def fill(self) -> None:
        await self.follower._once("x")


def run(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    def started(tmp_path: Path) -> None:
        async def main() -> None:
            before = await served(tmp_path, SMALL)
            await before.create("x", {})
            await (await before.open("x")).put([record(name, name) for name in "abc"])
            await test(tmp_path)

        asyncio.run(main())

    started.__name__ = test.__name__
    return started


async def process(path: Path, *models: Model, carries: bool = True) -> Process:
    return Process(await served(path, *(models or (NEWER, FORMER))), carries=carries)


@run
async def test_the_former_bundle_answers_until_the_new_one_is_complete(path: Path) -> None:
    one = await process(path)
    assert (await one.revision(), await one.has("a")) == (SMALL.revision, [True])
    # a service without it has nothing to read, and both write
    alone = await process(path, NEWER)
    with pytest.raises(BuildingError):
        await alone.revision()
    await one.write("d")
    await alone.write("e")
    assert await one.has("d") == [True]
    await one.fill()
    # all processes at once
    for each in (one, alone, await process(path)):
        assert await each.revision() == NEWER.revision
        assert await each.has(*"abcde") == [True] * 5
    own = await one.indexes.open("x")
    assert (await own.get("d")).vector[1] > 0.7, "embedded by the new bundle"


@run
async def test_a_bundle_of_another_name_succeeds_the_former_one(path: Path) -> None:
    other = Model("other", NEWER.revision, 4)
    one = await process(path, other, FORMER)
    assert await one.revision() == SMALL.revision
    await one.fill()
    assert (await one.indexes.open("x")).identity.model == "other"
    # a control: without the setting it is no successor
    with pytest.raises(ConflictError, match="--bundle small=PATH"):
        await (await process(path, Model("third", "d" * 64, 4))).revision()


async def _switch_during_writes(path: Path, *, carries: bool) -> tuple[list[bool], str]:
    """Write whenever a pass embeds and when it has read all ids; what answers afterwards."""
    one, other = await process(path), await process(path, carries=carries)
    acknowledged = list("abc")

    async def write(texts: Sequence[str]) -> list[Document]:
        if len(acknowledged) < 12:
            # before those that the pass has read
            acknowledged.append(f"A{20 - len(acknowledged)}")
            await other.write(acknowledged[-1])
        return await embed(texts)

    one.embed = write
    mark = one.indexes.registry.mark

    async def late(identity: Identity) -> None:
        acknowledged.append(f"0{len(acknowledged)}")
        await other.write(acknowledged[-1])
        await mark(identity)

    one.indexes.registry.mark = late  # type: ignore[method-assign]
    await one.fill()
    return await other.has(*acknowledged), await other.revision()


@run
async def test_no_acknowledged_write_is_missing_after_the_switch(path: Path) -> None:
    held, revision = await _switch_during_writes(path, carries=True)
    assert revision == NEWER.revision
    assert len(held) == 7
    assert all(held)


@run
async def test_without_the_copy_before_the_acknowledgement_some_would_be(path: Path) -> None:
    """A control."""
    held, revision = await _switch_during_writes(path, carries=False)
    assert revision == NEWER.revision
    assert not all(held)


@run
async def test_rows_of_the_former_bundle_never_reach_the_new_generation(path: Path) -> None:
    one = await process(path)
    before = await one.indexes.writable("x")
    await one.fill()
    # a request that embedded its documents before the switch
    await one.write("late", made_for=before)
    own = await one.indexes.open("x")
    assert (await own.get("late")).vector[1] > 0.7
    assert (await before.get("late")).vector[1] == 0
    # a condition on a version says nothing of the other generation
    rows = await before.rows([record("a", "again")])
    with pytest.raises(OvertakenError):
        await one.writer.write(own.identity.uid, Upsert(rows, {"a": "there"}))


@run
async def test_the_former_bundle_answers_again_at_once(path: Path) -> None:
    one = await process(path)
    await one.fill()
    await one.write("since")
    await commits.delete_everywhere(
        one.indexes, "x", (await one.indexes.open("x")).identity.uid, ["a"]
    )
    await one.fill()
    back = await process(path, SMALL, BACK)
    assert await back.revision() == SMALL.revision
    assert await back.has("since", "b", "a") == [True, True, False]
    await back.write("back")
    await back.fill()
    assert await (await process(path)).has("back") == [True]


class KilledError(BaseException):
    """The end of a process."""


POINTS = ("embed", "before closing", "after closing", "before complete", "after complete")


@run
async def test_a_killed_process_leaves_the_rest_to_another(path: Path) -> None:
    written = list("abc")
    for point in POINTS:
        one = await process(path)

        def reach(place: str, point: str = point) -> None:
            if place == point:
                raise KilledError

        async def embedding(
            texts: Sequence[str], reach: Callable[[str], None] = reach
        ) -> list[Document]:
            reach("embed")
            return await embed(texts)

        one.embed = embedding
        mark = one.indexes.registry.mark

        async def marking(
            identity: Identity,
            reach: Callable[[str], None] = reach,
            mark: Callable[[Identity], Awaitable[None]] = mark,
        ) -> None:
            state = "closing" if identity.generation.endswith("closing") else "complete"
            reach(f"before {state}")
            await mark(identity)
            reach(f"after {state}")

        one.indexes.registry.mark = marking  # type: ignore[method-assign]
        with pytest.raises(KilledError):
            await one.fill()
        answering = NEWER if point == "after complete" else SMALL
        assert await one.revision() == answering.revision
        assert all(await one.has(*written))
        written.append(f"after {point}")
        one.embed = embed
        await one.write(written[-1])
    last = await process(path)
    await last.fill()
    assert await last.revision() == NEWER.revision
    assert all(await last.has(*written))


@run
async def test_a_disk_without_room_is_said_before_the_work_begins(path: Path) -> None:
    one = await process(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
        with pytest.raises(ConflictError, match="has 10: enlarge it"):
            await one.fill()
    assert await one.revision() == SMALL.revision
    await one.fill()
    assert await one.revision() == NEWER.revision


@run
async def test_an_index_of_neither_bundle_is_found(path: Path) -> None:
    wrong = await process(path, NEWER, Model(":former", "d" * 64, 4, former=True))
    with pytest.raises(ConflictError, match=f"'x' .* 'small', revision {SMALL.revision[:12]}"):
        await wrong.indexes.needs_former()
    right = await process(path)
    assert await right.indexes.needs_former()
    await right.fill()
    for each in (right, wrong):
        assert not await each.indexes.needs_former()


def test_a_pace_counts_what_became_less(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0.0, 0.0, 10.0, 20.0, 100.0, 150.0, 300.0))
    monkeypatch.setattr(reembed, "time", SimpleNamespace(monotonic=lambda: next(times)))
    pace = Pace()
    pace.note(1000)
    assert (pace.rate, pace.seconds_left) == (0.0, None)
    pace.note(980)
    pace.note(960)
    assert (pace.rate, pace.seconds_left) == (2.0, 480.0)
    # it stands still: the rate falls to 0
    for _ in range(3):
        pace.note(960)
    assert pace.summary == {"rate": 0.0, "seconds_left": None}
