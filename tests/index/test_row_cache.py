"""Ids, digests and states of rows in memory: the same answers, in a bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from service.index import row_cache
from service.index.documents import Index
from service.index.maintenance import optimize
from service.index.query import passages, search
from service.index.query.passages import Form
from service.index.query.reading import Query, ordered
from service.index.row_cache import RowCache
from tests.index.processes import Replicas, record, run

COUNT = 12
VECTOR = np.array([1, 0, 0, 0], dtype=np.float32)


def text(number: int) -> str:
    """A long query; the next numbers have most of its words."""
    return " ".join(f"word{one}" for one in range(10 * number, 10 * number + 200))


QUERY = Query(VECTOR, text(0))


async def _by_words(index: Index) -> list[str]:
    return [hit.id for hit in await search.words(index, QUERY, 5, None)]


async def _by_both(index: Index) -> list[str]:
    return [hit.id for hit in await search.hybrid(index, QUERY, 5, None)]


async def _by_passages(index: Index) -> list[str]:
    found = await passages.search(index, QUERY, "words", Form(5, 1, 100), None)
    return [one.id for one in found]


SEARCHES: dict[str, Callable[[Index], Awaitable[list[str]]]] = {
    "words": _by_words,
    "hybrid": _by_both,
    "passages": _by_passages,
}
each_search = pytest.mark.parametrize("kind", SEARCHES)


@pytest.fixture(autouse=True)
def _never_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "EFFORT", 1e9)


async def opened(replicas: Replicas) -> Index:
    indexes = await replicas.open("a")
    await indexes.create("x", {})
    index = await indexes.open("x")
    await index.put([record(f"d{number}", text(number)) for number in range(COUNT)])
    return index


async def rows_of(index: Index) -> list[int]:
    found = await index.table.query().select(["id"]).with_row_id().to_arrow()
    rows: list[int] = found["_rowid"].to_pylist()
    return rows


async def loaded(cache: RowCache) -> None:
    """Wait for a load that a search began."""
    assert cache._loading is not None
    await cache._loading


async def filled(replicas: Replicas) -> Index:
    """An index whose rows are all in memory."""
    index = await opened(replicas)
    assert index.row_cache.find(index.table, await rows_of(index)) is None
    await loaded(index.row_cache)
    return index


async def uncached(index: Index, kind: str) -> list[str]:
    """The answer of a search that reads all from the table."""
    return await SEARCHES[kind](replace(index, row_cache=RowCache(0), damaged=lambda _: None))


def reads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each later read of rows took their ids from memory."""
    seen: list[bool] = []
    take = row_cache.take

    async def watched(table: Any, rows: Any, columns: Any, known: Any = None) -> pa.Table:
        seen.append(known is not None)
        return await take(table, rows, columns, known)

    for module in ("documents", "query.passages", "query.reading"):
        monkeypatch.setattr(f"service.index.{module}.take", watched)
    return seen


@each_search
def test_a_search_finds_the_same_with_and_without_the_cache(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @run
    async def scenario(replicas: Replicas) -> None:
        index = await opened(replicas)
        seen = reads(monkeypatch)
        expected = await uncached(index, kind)
        assert "d0" in expected
        # a control: it read all from the table
        assert seen
        assert not any(seen)
        assert await SEARCHES[kind](index) == expected
        await loaded(index.row_cache)
        seen.clear()
        assert await SEARCHES[kind](index) == expected
        assert seen
        assert all(seen)

    scenario(tmp_path)


@run
async def test_the_cache_has_the_values_of_the_table(replicas: Replicas) -> None:
    index = await filled(replicas)
    rows = list(reversed(await rows_of(index)))
    known = index.row_cache.find(index.table, rows)
    assert known is not None
    assert known["_rowid"].to_pylist() == rows
    read = await index.table.query().select(["id", "digest", "text"]).with_row_id().to_arrow()
    read = read.sort_by([("_rowid", "descending")])
    assert known["id"].to_pylist() == read["id"].to_pylist()
    assert known["digest"].to_pylist() == read["digest"].to_pylist()
    assert known["characters"].to_pylist() == [len(one) for one in read["text"].to_pylist()]
    assert known["windows"].to_pylist() == [1] * COUNT


@each_search
def test_writes_and_moved_rows_are_seen_at_once(tmp_path: Path, kind: str) -> None:
    @run
    async def scenario(replicas: Replicas) -> None:
        index = await filled(replicas)
        await index.tombstone({"d1": 2**60})
        await index.put([record("d2", "a newer text"), record("new", text(0))])
        expected = await uncached(index, kind)
        assert "new" in expected
        assert not {"d1", "d2"} & set(expected)
        assert await SEARCHES[kind](index) == expected
        await loaded(index.row_cache)
        assert await SEARCHES[kind](index) == expected
        # a compaction moves all rows
        before = await rows_of(index)
        await optimize(index.table)
        assert set(before).isdisjoint(await rows_of(index))
        assert await SEARCHES[kind](index) == await uncached(index, kind)

    scenario(tmp_path)


@each_search
def test_wrong_values_in_the_cache_change_no_answer(tmp_path: Path, kind: str) -> None:
    """As after a table was set back to a former version, whose next rows have the same places."""

    @run
    async def scenario(replicas: Replicas) -> None:
        index = await filled(replicas)
        noted: list[int] = []
        index = replace(index, damaged=noted.append)
        expected = await uncached(index, kind)
        [held] = index.row_cache._held.values()
        order = pa.array(np.roll(np.arange(COUNT), 1))
        for name in ("id", "digest", "updated"):
            place = held.values.schema.get_field_index(name)
            held.values = held.values.set_column(place, name, held.values[name].take(order))
        with capture_logs() as logs:
            assert await SEARCHES[kind](index) == expected
            assert await SEARCHES[kind](index) == expected
        assert [log["event"] for log in logs] == ["row_cache_wrong"]
        assert noted == []

    scenario(tmp_path)


@each_search
def test_a_damaged_row_is_left_out_and_the_cache_stays(tmp_path: Path, kind: str) -> None:
    @run
    async def scenario(replicas: Replicas) -> None:
        index = await opened(replicas)
        await index.table.update({"vector": [0.0, 1.0, 0.0, 0.0]}, where="id = 'd1'")
        index.row_cache.find(index.table, await rows_of(index))
        await loaded(index.row_cache)
        size = index.row_cache.size_bytes
        expected = await uncached(index, kind)
        assert "d0" in expected
        assert "d1" not in expected
        assert await SEARCHES[kind](index) == expected
        assert index.row_cache.size_bytes == size > 0
        assert index.row_cache.mistakes == 0

    scenario(tmp_path)


@run
async def test_rows_beyond_the_limit_are_read_from_the_table(replicas: Replicas) -> None:
    index = await filled(replicas)
    size = index.row_cache.size_bytes
    table, rows = index.table, await rows_of(index)
    for limit, fits in ((size, True), (size - 1, False), (0, False)):
        small = RowCache(limit)
        assert small.find(table, rows) is None
        if limit:
            await loaded(small)
        assert (small.find(table, rows) is not None) is fits
        assert small.size_bytes <= limit
    # after a refusal it does not try again with each search
    refused = RowCache(size - 1)
    refused.find(table, rows)
    first = refused._loading
    await loaded(refused)
    refused.find(table, rows)
    assert refused._loading is first


def test_unused_values_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @run
    async def scenario(replicas: Replicas) -> None:
        index = await filled(replicas)
        table, rows = index.table, await rows_of(index)
        await index.put([record(f"e{number}", text(number)) for number in range(COUNT)])
        others = sorted(set(await rows_of(index)) - set(rows))
        small = RowCache(int(1.5 * index.row_cache.size_bytes))
        for wanted in (rows, others):
            small.find(table, wanted)
            await loaded(small)
        # used values stay
        assert small.find(table, rows) is not None
        assert small.find(table, others) is None
        monkeypatch.setattr(row_cache, "IDLE_SECONDS", 0.0)
        small._rests_until = 0.0
        small.find(table, others)
        await loaded(small)
        assert small.find(table, others) is not None
        assert small.find(table, rows) is None

    scenario(tmp_path)


@run
async def test_a_failed_load_is_logged_and_searches_go_on(replicas: Replicas) -> None:
    index = await opened(replicas)
    expected = await _by_words(index)
    await loaded(index.row_cache)
    await index.put([record("new", text(0))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_cache, "measured", lambda read: read["none"])
        with capture_logs() as logs:
            assert "new" in await _by_words(index)
            await loaded(index.row_cache)
    assert {log["event"] for log in logs} == {"row_cache_not_loaded"}
    assert set(await _by_words(index)) == {"new", *expected[:4]}


def test_loads_take_a_small_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cache, "EFFORT", 1e-9)

    @run
    async def scenario(replicas: Replicas) -> None:
        index = await filled(replicas)
        first = index.row_cache._loading
        await index.put([record("new", text(0))])
        rows = await rows_of(index)
        assert index.row_cache.find(index.table, rows) is None
        assert index.row_cache._loading is first
        # a control: later it loads again
        index.row_cache._rests_until = 0.0
        assert index.row_cache.find(index.table, rows) is None
        await loaded(index.row_cache)
        assert index.row_cache.find(index.table, rows) is not None

    scenario(tmp_path)


@pytest.mark.parametrize(
    ("scores", "least", "expected", "searches"),
    [
        ([5, 4, 3, 2, 2, 2, 1], None, [0, 1, 2, 3, 4], 2),
        ([5, 4, 3, 2, 2, 2, 1], 3, [0, 1, 2], 1),
        # too few are better
        ([5, 4, 3, 2, 2, 2, 1], 4, [0, 1, 2, 3, 4], 2),
        ([5, 4, 3, 3, 3, 3, 1], 1, [0, 1, 2, 3, 4], 2),
        # the last wanted row differs from the next one
        ([5, 4, 3, 2, 2, 1, 1], 1, [0, 1, 2, 3, 4], 1),
        ([5, 4], 1, [0, 1], 1),
    ],
)
def test_candidates_leave_rows_out_that_are_equal_to_the_last_one(
    scores: list[float], least: int | None, expected: list[int], searches: int
) -> None:
    asked: list[int] = []
    table = pa.table({"_score": pa.array(scores, pa.float32()), "_rowid": range(len(scores))})

    async def find(most: int) -> pa.Table:
        asked.append(most)
        return table.slice(0, most)

    found = asyncio.run(ordered(find, 5, "_score", "descending", least=least))
    assert found["_rowid"].to_pylist() == expected
    assert len(asked) == searches
