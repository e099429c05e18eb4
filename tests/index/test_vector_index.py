"""Searches in a table with an approximate index over its vectors."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lancedb.index import IvfHnswSq, IvfRq

from service.index import maintenance
from service.index.documents import Index
from service.index.indexes import Indexes, Model, connect
from service.index.query import filters, passages, search
from service.index.query.filters import Where, identified
from service.index.query.passages import by_window, sized
from service.index.query.reading import Query
from service.index.rows.records import Encoding, Record
from tests.integrity import stores

DOCUMENTS = 300
NAMES = [f"d{number}" for number in range(DOCUMENTS)]


async def _filled(path: Path) -> Index:
    indexes = await stores.open_indexes(path)
    await indexes.create("x", {})
    index = await indexes.open("x")
    await index.put([stores.record(name) for name in NAMES])
    return index


@pytest.mark.parametrize("limit", [10, 100, 250])
def test_every_mode_gives_as_many_hits_as_without_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(maintenance, "VECTOR_INDEX_ROWS", DOCUMENTS)

    async def scenario() -> None:
        index = await _filled(tmp_path)
        query = await search.stored(index, "d7")
        query = replace(query, exclude=frozenset(NAMES[10:30]))
        searches = (search.cosine, search.hybrid)
        before = [await run(index, query, limit, None) for run in searches]
        await maintenance.optimize(index.table)
        built = {one.columns[0] for one in await index.table.list_indices()}
        assert "vector" in built
        for run, exact in zip(searches, before, strict=True):
            found = await run(index, query, limit, None)
            assert len(found) == len(exact) == limit
            assert not {hit.id for hit in found} & {"d7", *NAMES[10:30]}
            shared = {hit.id for hit in found} & {hit.id for hit in exact}
            assert len(shared) > 0.9 * limit

    stores.run(scenario())


def test_an_index_of_vectors_that_lancedb_cannot_index_is_maintained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "VECTOR_INDEX_ROWS", 9)
    monkeypatch.setattr(maintenance, "WINDOW_INDEX_WINDOWS", 9)

    async def scenario() -> None:
        databases = [await connect(f"{tmp_path}/{part}") for part in ("indexes", "leases")]
        indexes = Indexes(databases[0], databases[1], Model("model", "a" * 64, 12))
        await indexes.create("x", {})
        index = await indexes.open("x")
        directions = np.eye(12, dtype=np.float32)
        await index.put(
            [
                Record(f"d{place}", "text", None, {}, [], Encoding(one, one[None], [4]))
                for place, one in enumerate(directions)
            ]
        )
        assert await maintenance.maintain(indexes, "x", index)
        query = Query(directions[7], "")
        assert (await search.cosine(index, query, 1, None))[0].id == "d7"
        assert len(await by_window(index, query, 5, None)) > 1

    stores.run(scenario())


def test_an_index_whose_documents_were_deleted_is_maintained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "VECTOR_INDEX_ROWS", DOCUMENTS)
    monkeypatch.setattr(maintenance, "WINDOW_INDEX_WINDOWS", DOCUMENTS)

    async def scenario() -> None:
        index = await _filled(tmp_path)
        await index.tombstone(dict.fromkeys(NAMES[1:], time.time_ns() // 1000))
        await maintenance.optimize(index.table)
        assert await index.count() == 1
        built = {one.columns[0] for one in await index.table.list_indices()}
        assert not built & {"vector", "windows"}

    stores.run(scenario())


async def _indexed(path: Path) -> Index:
    index = await _filled(path)
    await maintenance.optimize(index.table)
    return index


async def _segments(index: Index) -> int:
    [found] = [one for one in await index.table.list_indices() if one.columns == ["vector"]]
    assert found.index_type == "IvfRq"
    return found.num_segments or 1


async def _files(index: Index) -> int:
    # the library annotates this as None
    table: Any = index.table
    held = await table.stats()
    return int(held["fragment_stats"]["num_fragments"])


@pytest.mark.parametrize("bounded", [True, False])
def test_segments_and_files_stay_few_under_a_trickle_of_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounded: bool
) -> None:
    # twice as many as a bounded index gets before it is built again
    most, written = 4, 10 if bounded else 6
    monkeypatch.setattr(maintenance, "VECTOR_INDEX_ROWS", DOCUMENTS)
    monkeypatch.setattr(maintenance, "MOST_SEGMENTS", most if bounded else 1000)

    async def scenario() -> None:
        index = await _indexed(tmp_path)
        segments, files = [], []
        for number in range(written):
            await index.put([stores.record(f"new{number}")])
            await maintenance.optimize(index.table)
            segments.append(await _segments(index))
            files.append(await _files(index))
        # without the bound both grow
        assert (max(segments) <= most) is bounded
        assert (max(files) <= most + 1) is bounded
        assert await index.count() == DOCUMENTS + written

    stores.run(scenario())


@pytest.mark.parametrize("shrunk", [True, False])
def test_an_index_that_became_small_is_searched_without_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shrunk: bool
) -> None:
    most = 4
    monkeypatch.setattr(maintenance, "VECTOR_INDEX_ROWS", DOCUMENTS)
    monkeypatch.setattr(maintenance, "MOST_SEGMENTS", most)

    async def scenario() -> None:
        index = await _indexed(tmp_path)
        deleted = [f"d{number}" for number in range(100, 200)] if shrunk else []
        await index.tombstone(dict.fromkeys(deleted, time.time_ns() // 1000))
        for number in range(most):
            await index.put([stores.record(f"new{number}")])
            await maintenance.optimize(index.table)
        built = {one.columns[0] for one in await index.table.list_indices()}
        assert ("vector" in built) is not shrunk
        hits = await search.cosine(index, await search.stored(index, "new3"), 10, None)
        assert len(hits) == 10
        assert not {hit.id for hit in hits} & set(deleted)

    stores.run(scenario())


def test_maintenance_replaces_the_graph_of_a_former_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        index = await _indexed(tmp_path)
        await index.table.create_index("vector", config=IvfHnswSq(distance_type="cosine"))
        query = await search.stored(index, "d7")
        former = [hit.id for hit in await search.cosine(index, query, 10, None)]
        monkeypatch.setattr(maintenance, "VECTOR_INDEX_ROWS", DOCUMENTS)
        await maintenance.optimize(index.table)
        assert await _segments(index) == 1
        assert [hit.id for hit in await search.cosine(index, query, 10, None)] == former

    stores.run(scenario())


@pytest.mark.parametrize("whole", [True, False])
def test_a_narrow_filter_finds_every_document_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    rare = {"d1", "d150", "d299"}

    async def one(_: Index, nearest: Callable[[int], Awaitable[pa.Table]], __: Where) -> pa.Table:
        return await nearest(1)

    async def scenario() -> None:
        index = await _indexed(tmp_path)
        for column in ("vector", "windows"):
            config = IvfRq(distance_type="cosine", num_partitions=32)
            await index.table.create_index(column, config=config)
        where = identified(sorted(rare))
        query = await search.stored(index, "d7")
        found = {hit.id for hit in await search.cosine(index, query, 10, where)}
        assert (found == rare) is whole
        rows = await by_window(index, query, 10, where)
        near = {one.id for one in await sized(index, query, rows)}
        assert (near == rare) is whole

    monkeypatch.setattr(filters, "FILTERED_PARTS", 1)
    if not whole:
        # the control reads one part of the index only
        for module in (search, passages):
            monkeypatch.setattr(module, "filtered", one)
    stores.run(scenario())
