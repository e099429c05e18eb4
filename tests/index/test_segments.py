"""Segments of the indexes of a large table: which are merged, and what searches find in them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import lance
import pytest
from lancedb.table import AsyncTable

from docsplit.ranking.words import words
from service.index import maintenance
from service.index import merger as merging
from service.index import merging as process
from service.index.indexes import Indexes
from service.index.merger import FEW, newest, update
from service.index.query import search
from tests.index import piped
from tests.index.test_merging import put
from tests.integrity import stores


class TestNewest:
    def test_a_large_segment_waits_for_enough_new_rows(self) -> None:
        assert newest([], 64, FEW) == 0
        assert newest([1_000_000], 64, FEW) == 0
        assert newest([1_000_000], 249_999, FEW) == 0
        assert newest([1_000_000], 250_000, FEW) == 1

    def test_small_segments_are_always_merged(self) -> None:
        assert newest([1], 1, FEW) == 1
        assert newest([1_000_000, 4_096], 1, FEW) == 1
        assert newest([1_000_000, 4_097], 1, FEW) == 0

    def test_what_is_merged_counts_for_older_segments(self) -> None:
        assert newest([20_000, 4_000, 64], 64, FEW) == 2
        assert newest([20_000, 4_097, 64], 64, FEW) == 1
        assert newest([20_000, 4_000, 1_000], 1_000, FEW) == 3

    def test_segments_stay_few_and_rows_are_rarely_written_again(self) -> None:
        held: list[int] = []
        written = most = 0
        for _ in range(15_625):
            kept = len(held) - newest(held, 64, FEW)
            held[kept:] = [sum(held[kept:]) + 64]
            written += held[-1]
            most = max(most, len(held))
        assert sum(held) == 1_000_000
        assert most <= 5
        # 8,000 times each, if all were merged each time
        assert written < 60 * 1_000_000


Place = tuple[str, dict[str, str] | None]


async def filled(root: Path, number: int) -> tuple[Indexes, Place]:
    """A store whose index x has so many documents, and the place of the index."""
    indexes = await stores.open_indexes(root)
    await indexes.create("x", {})
    table = await put(indexes, 0, number)
    return indexes, (await table.uri(), await table.latest_storage_options())


def opened(place: Place) -> lance.LanceDataset:
    return lance.dataset(place[0], storage_options=place[1])


def parts(place: Place) -> dict[str, list[int]]:
    """Rows of each segment of each index, the oldest first."""
    table = opened(place)
    rows = {one.fragment_id: one.metadata.physical_rows for one in table.get_fragments()}
    return {
        index.name: [
            sum(rows.get(one, 0) for one in covers)
            for covers in sorted(sorted(part.fragment_ids) for part in index.segments)
        ]
        for index in table.describe_indices()
    }


async def scores(table: AsyncTable, text: str) -> dict[str, float]:
    query = (
        table.query()
        .nearest_to_text(" ".join(words(text)), columns="words")
        .select(["id", "_score"])
    )
    return {row["id"]: row["_score"] for row in await query.limit(100).to_list()}


async def test_new_rows_become_segments_that_searches_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FEW", 1)

    indexes, place = await filled(tmp_path, 20)
    await asyncio.to_thread(update, *place)
    held = parts(place)
    assert {"id_idx", "words_idx", "links_idx"} <= held.keys()
    assert set(map(tuple, held.values())) == {(20,)}

    index = await indexes.open("x")
    name = index.table.name
    for first, number, expected in ((20, 3, (20, 3)), (23, 1, (20, 4)), (24, 2, (26,))):
        await put(indexes, first, number)
        await asyncio.to_thread(update, *place)
        assert set(map(tuple, parts(place).values())) == {expected}
        found = await scores(await indexes.database.open_table(name), "word")
        assert found.keys() == {f"d{one}" for one in range(first + number)}
        # the same text has the same score in each segment
        assert len({round(score, 3) for score in found.values()}) == 1
        for one in (0, first):
            document = await index.get(f"d{one}")
            assert document.id == f"d{one}"

    await put(indexes, 26, 1)
    await index.put([stores.record("d0", "quite another text")])
    await asyncio.to_thread(update, *place)
    assert set(map(tuple, parts(place).values())) == {(25, 2)}
    again = await indexes.database.open_table(name)
    assert "d0" not in await scores(again, "word")
    assert (await scores(again, "another")).keys() == {"d0"}


async def test_a_vector_index_keeps_its_clusters_until_it_has_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SMALL_BYTES", 0)
    monkeypatch.setattr(process, "started", piped.merging_process)
    monkeypatch.setattr(maintenance, "VECTOR_INDEX_ROWS", 300)

    indexes, place = await filled(tmp_path, 1)
    index = await indexes.open("x")
    await index.put([stores.record(f"d{number}") for number in range(1, 300)])
    await maintenance.optimize(index.table)
    assert parts(place)["vector_idx"] == [300]
    first = 300
    for number, expected in (
        (9, [300, 9]),
        (1, [300, 9, 1]),
        (2, [300, 12]),
        (200, [300, 212]),
        # 300 and 301 rows
        (87, [300, 299]),
        (1, [600]),
    ):
        given = [stores.record(f"d{one}") for one in range(first, first + number)]
        await index.put(given)
        first += number
        await maintenance.optimize(index.table)
        assert parts(place)["vector_idx"] == expected
        query = await search.stored(index, "d7")
        found = await search.cosine(index, query, first, None)
        assert {hit.id for hit in found} == {f"d{one}" for one in range(first) if one != 7}


async def test_lance_itself_writes_the_whole_index_again(tmp_path: Path) -> None:
    """The control of the test before."""

    indexes, place = await filled(tmp_path, 20)
    await asyncio.to_thread(opened(place).optimize.optimize_indices)
    await put(indexes, 20, 3)
    await asyncio.to_thread(opened(place).optimize.optimize_indices)
    assert parts(place)["words_idx"] == [23]


async def test_nothing_is_written_without_new_rows(tmp_path: Path) -> None:
    _, place = await filled(tmp_path, 2)
    await asyncio.to_thread(update, *place)
    version = opened(place).version
    await asyncio.to_thread(update, *place)
    assert opened(place).version == version
