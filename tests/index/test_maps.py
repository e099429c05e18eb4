"""Maps of indexes: positions, topics, and the places of documents that come later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from features.maps import compute as computing
from features.maps import current as currents
from features.maps import layout, naming
from features.maps.compute import compute
from features.maps.current import Current, CurrentMaps
from service.index.indexes import Indexes, Model, connect
from service.index.rows.keyed import Row
from service.index.rows.records import Encoding, Record

pytest.importorskip("openTSNE", reason="the extra map is not installed")

DIMENSIONS = 16
GROUPS = {"stars": "telescope galaxy orbit", "bread": "flour oven yeast", "chess": "rook pawn mate"}
EACH = 30


def document(name: str, seed: int, vector: Any = None) -> Record:
    """A document of the group that its name begins with, near the group's direction."""
    group = name.split("-")[0]
    if vector is None:
        noise = np.random.default_rng(seed).normal(0, 0.1, DIMENSIONS)
        vector = np.eye(DIMENSIONS)[list(GROUPS).index(group)] + noise
    vector = (vector / np.linalg.norm(vector)).astype(np.float32)
    text = f"the text number {seed} of {GROUPS[group]} and more"
    return Record(name, text, None, {"n": seed}, [], Encoding(vector, vector[None], [len(text)]))


@dataclass
class Place:
    """An index of three groups, and where its maps are."""

    indexes: Indexes
    maps: CurrentMaps
    steps: list[str]

    async def put(self, *documents: Record) -> None:
        await (await self.indexes.open("x")).put(documents)

    async def made(self) -> Row:
        return await compute(
            await self.indexes.open("x"), lambda step, share: self.steps.append(step)
        )

    async def current(self, field: str | None = None) -> Current | None:
        return await self.maps.get(self.indexes.maps, await self.indexes.open("x"), field)


def scenario(test: Callable[[Place], Awaitable[None]]) -> Callable[[Path], None]:
    @wraps(test)
    def started(tmp_path: Path) -> None:
        async def main() -> None:
            databases = [await connect(f"{tmp_path}/{part}") for part in ("indexes", "leases")]
            model = Model("model", "a" * 64, DIMENSIONS)
            place = Place(Indexes(databases[0], databases[1], model), CurrentMaps(), [])
            await place.indexes.create("x", {"n": "integer"})
            # the stored order is not the order of ids
            names = [f"{group}-{at:02}" for at in range(EACH) for group in GROUPS]
            await place.put(*(document(name, seed) for seed, name in enumerate(names)))
            await test(place)

        asyncio.run(main())

    # pytest would ask for a fixture of this name
    del started.__wrapped__
    return started


def topics_of(current: Current) -> dict[str, set[int]]:
    """The topics of each group's documents."""
    found: dict[str, set[int]] = {}
    for name, topic in zip(current.ids, current.topic.tolist(), strict=True):
        found.setdefault(name.split("-")[0], set()).add(topic)
    return found


@scenario
async def test_each_group_is_a_topic_that_its_own_words_name(place: Place) -> None:
    assert await place.current() is None
    await place.indexes.maps.put(await place.made())
    current = await place.current("n")
    assert current is not None
    assert current.ids == sorted(current.ids)
    assert (len(current.ids), current.placed, current.unplaced) == (3 * EACH, 0, 0)
    assert current.values is not None
    assert [current.ids[current.values.index(seed)] for seed in (0, 1, 5)] == [
        "stars-00",
        "bread-00",
        "chess-01",
    ]
    groups = topics_of(current)
    assert sorted(map(len, groups.values())) == [1, 1, 1]
    assert len(set.union(*groups.values())) == 3
    for group, [number] in groups.items():
        topic = current.map.topics[number]
        assert set(topic.words) == set(GROUPS[group].split())
        assert {name.split("-")[0] for name in topic.examples} == {group}
    assert set(place.steps) == {"reading", "layout", "topics"}


@scenario
async def test_the_same_documents_give_the_same_map(place: Place) -> None:
    one, two = await place.made(), await place.made()
    assert one["documents"] == two["documents"]
    assert one["topics"] == two["topics"]
    assert one["version"] != two["version"]
    await place.put(document("stars-00", 99))
    assert (await place.made())["documents"] != one["documents"]


@scenario
async def test_a_later_document_stands_among_its_neighbours(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    before = await place.current()
    assert before is not None
    moved = np.eye(DIMENSIONS)[list(GROUPS).index("bread")]
    await place.put(document("chess-99", 99), document("stars-03", 3, moved))
    index = await place.indexes.open("x")
    await index.tombstone({"bread-04": 2**60})
    current = await place.current()
    assert current is not None
    assert (current.placed, current.unplaced, current.stale) == (2, 0, 2 / 90)
    assert "bread-04" not in current.ids
    groups = topics_of(before)
    for name, group in {"chess-99": "chess", "stars-03": "bread"}.items():
        at = current.ids.index(name)
        assert {int(current.topic[at])} == groups[group]
        own = [place for place, held in enumerate(before.ids) if held.startswith(group)]
        low, high = before.positions[own].min(axis=0), before.positions[own].max(axis=0)
        assert (low <= current.positions[at]).all()
        assert (current.positions[at] <= high).all()
    # the others stay where they were
    known = dict(zip(before.ids, before.positions.tolist(), strict=True))
    same = [name for name in current.ids if name not in ("chess-99", "stars-03")]
    positions = dict(zip(current.ids, current.positions.tolist(), strict=True))
    assert [positions[name] for name in same] == [known[name] for name in same]
    # another process gives them the same places
    other = await CurrentMaps().get(place.indexes.maps, index)
    assert other is not None
    assert np.array_equal(other.positions, current.positions)


@scenario
async def test_one_call_places_a_bounded_number_of_documents(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(currents, "MOST_NEW", 3)
        await place.put(*(document(f"chess-{at}", at) for at in range(80, 85)))
        first, second = await place.current(), await place.current()
    assert first is not None
    assert second is not None
    assert (first.placed, first.unplaced) == (3, 2)
    assert (second.placed, second.unplaced) == (5, 0)


@scenario
async def test_former_documents_leave_room_for_the_places_of_new_ones(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    index = await place.indexes.open("x")

    async def counts() -> tuple[int, int, bool]:
        current = await place.current()
        assert current is not None
        return current.placed, current.unplaced, current.growing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(currents, "_KEPT_NEW", 4)
        patch.setattr(currents, "MOST_NEW", 3)
        await place.put(*(document(f"chess-{at}", at) for at in range(80, 87)))
        assert [await counts() for _ in range(3)] == [(3, 4, True), (4, 3, False), (4, 3, False)]
        await index.tombstone({"chess-80": 2**60, "chess-81": 2**60})
        # written again, with another time
        await place.put(document("chess-82", 99))
        assert [await counts() for _ in range(2)] == [(4, 1, False), (4, 1, False)]
        await index.tombstone({"chess-83": 2**60})
        assert await counts() == (4, 0, False)
        # another process places the same number
        place.maps = CurrentMaps()
        assert [await counts() for _ in range(2)] == [(3, 1, True), (4, 0, False)]


@scenario
async def test_a_larger_index_is_computed_from_a_sample(place: Place) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(computing, "MOST_COMPUTED", 75)
        await place.indexes.maps.put(await place.made())
    assert "placing" in place.steps
    current = await place.current()
    assert current is not None
    assert len(current.ids) == 90
    space = await place.indexes.maps.space(
        (await place.indexes.open("x")).table.name, current.map.version
    )
    assert space is not None
    assert len(space.points) == 75
    assert sorted(map(len, topics_of(current).values())) == [1, 1, 1]


@pytest.mark.parametrize("column", ["documents", "topics", "version"])
def test_a_damaged_map_counts_as_none(tmp_path: Path, column: str) -> None:
    @scenario
    async def damage(place: Place) -> None:
        row = await place.made()
        await place.indexes.maps.put(row)
        assert await place.current() is not None
        value = row[column]
        worse = value[:-1] + bytes([value[-1] ^ 1]) if isinstance(value, bytes) else value[::-1]
        await place.indexes.maps.put(row | {column: worse})
        assert await place.current() is None

    damage(tmp_path)


@scenario
async def test_a_deleted_index_leaves_no_map(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    table = (await place.indexes.open("x")).table.name
    assert await place.indexes.maps.get(table) is not None
    await place.indexes.drop("x")
    assert await place.indexes.maps.get(table) is None


@pytest.mark.parametrize("number", [0, 1, 2, 12])
def test_a_small_index_has_a_map_without_topics(tmp_path: Path, number: int) -> None:
    @scenario
    async def small(place: Place) -> None:
        index = await place.indexes.open("x")
        everything = await index.updated([f"{g}-{at:02}" for g in GROUPS for at in range(EACH)])
        gone = sorted(everything)[number:]
        await index.tombstone(dict.fromkeys(gone, 2**60))
        await place.indexes.maps.put(await place.made())
        current = await place.current()
        assert current is not None
        assert (len(current.ids), current.map.topics) == (number, [])
        assert np.isfinite(current.positions).all()

    small(tmp_path)


@scenario
async def test_equal_documents_have_one_position(place: Place) -> None:
    same = np.ones(DIMENSIONS)
    names = [f"{group}-{at:02}" for at in range(EACH) for group in GROUPS]
    await place.put(*(document(name, 1, same) for name in names))
    await place.indexes.maps.put(await place.made())
    current = await place.current()
    assert current is not None
    assert (len(current.ids), current.unplaced) == (3 * EACH, 0)
    assert np.isfinite(current.positions).all()
    assert (current.positions == current.positions[0]).all()
    await place.put(document("chess-99", 99))
    later = await place.current()
    assert later is not None
    assert (later.placed, later.unplaced) == (1, 0)


def test_words_that_all_topics_share_name_none() -> None:
    one = naming.counted("the quick star stars 42 a star")
    two = naming.counted("the slow bread breads 43 a")
    assert set(one) == {"the", "quick", "star", "stars"}
    for counts in (one, two):
        counts.update(counts.copy())
    # a plural names nothing further
    assert naming.names([one, two], [2, 2]) == [["quick", "star"], ["bread", "slow"]]


def test_topics_whose_words_are_those_of_all_have_the_most_frequent_as_names() -> None:
    counts = [naming.counted(f"ticket {number}: done") for number in range(2)]
    counts[0] += naming.counted("ticket 3")
    assert naming.names(counts, [2, 1]) == [["ticket", "done"], ["done", "ticket"]]


def topics_in(vectors: NDArray[np.float64]) -> NDArray[np.int32]:
    halves = vectors.astype(np.float16)
    mean, basis = layout.fit(halves)
    points = ((layout.unit(halves) - mean) @ basis).astype(np.float32)
    graph = layout.neighbours(points, lambda share: None)
    return layout.topics(layout.positions(points, graph, lambda share: None), points, graph)


@pytest.mark.parametrize("copies", [75, 100, 130])
def test_many_identical_documents_are_a_topic(copies: int) -> None:
    """A fifth to a third of all; the others are groups of ten."""
    chance = np.random.default_rng(0)
    middles = np.repeat(chance.normal(size=(30, 96)), 10, axis=0)
    others = middles / np.linalg.norm(middles, axis=1, keepdims=True)
    others += 0.05 * chance.normal(size=others.shape)
    same = np.repeat(chance.normal(size=(1, 96)) / 96**0.5, copies, axis=0)
    topics = topics_in(np.concatenate([others, same]))
    [own] = set(topics[-copies:].tolist())
    assert own >= 0
    assert own not in topics[:300]
    # the control: the other groups are topics of their own
    assert len(set(topics[:300]) - {-1}) >= 20


@pytest.mark.parametrize("spread", [1, 3, 5])
def test_themes_that_overlap_are_topics(spread: float) -> None:
    """Of 400 documents in four themes none is left out, however much each has of its own."""
    chance = np.random.default_rng(0)
    themes = np.repeat(np.arange(4), 100)
    vectors = chance.normal(size=(4, 384))[themes] + spread * chance.normal(size=(400, 384))
    topics = topics_in(vectors)
    assert len(set(topics)) in (4, 5)
    assert (topics >= 0).all()
    common = [np.bincount(topics[themes == theme]).max() for theme in range(4)]
    assert sum(common) > (300 if spread == 5 else 390)


@scenario
async def test_neither_ids_nor_the_order_of_writes_move_a_document(place: Place) -> None:
    first = await place.made()
    await place.indexes.create("y", {"n": "integer"})
    names = [f"{group}-{at:02}" for at in range(EACH) for group in GROUPS]
    index = await place.indexes.open("y")
    written = [
        replace(document(name, seed), id=f"{7 - seed % 7}-{name}")
        for seed, name in reversed(list(enumerate(names)))
    ]
    await index.put(written)
    again = await compute(index, lambda step, share: None)
    await place.indexes.maps.put(first)
    await place.indexes.maps.put(again)
    one = await place.current()
    other = await place.maps.get(place.indexes.maps, index, None)
    assert one is not None
    assert other is not None
    where = dict(zip(one.ids, one.positions.tolist(), strict=True))
    assert {
        name.split("-", 1)[1]: at
        for name, at in zip(other.ids, other.positions.tolist(), strict=True)
    } == where
    # the control: the order of the ids is another one
    assert [name.split("-", 1)[1] for name in other.ids] != one.ids


@pytest.mark.parametrize("head", ["From: Anna Tenant <anna@example.org>", "Von: Anna Tenant"])
def test_the_head_of_a_mail_names_no_topic(head: str) -> None:
    lines = [
        "Message-ID: <9@host>",
        head,
        "To: Office",
        "Cc: Carl Other,",
        "\tDora Last",
        "Subject: rent",
    ]
    body = "Dear office,\n\nthe deposit is due.\nCarl: no. See https://carl.example/terms."
    found = naming.counted("\n".join(["Deposit", "", *lines, "", body]))
    assert set(found) == {"deposit", "dear", "office", "the", "due", "carl", "see"}
    # the control: the same lines without a sender are no head
    lines.remove(head)
    assert "other" in naming.counted("\n".join(["", *lines, "", body]))
