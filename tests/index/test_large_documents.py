"""Readers of stored texts take some MB at a time, however large the documents are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from features.maps import compute
from service.index import documents, maintenance, reembed
from service.index import found_links as links
from service.index.documents import Index
from service.index.indexes import Indexes, Model, connect
from service.index.query import duplicates, passages, words
from service.index.query.passages import Form
from service.index.query.reading import Query
from service.index.rows import derived
from service.index.rows.checksums import Part
from tests.index.processes import record

COUNT = 12
CHARACTERS = 100_000
QUERY = Query(np.array([1, 0, 0, 0], dtype=np.float32), "word 3 and others")


def text(number: int) -> str:
    return f"word {number} and others ".ljust(CHARACTERS, "x")


async def opened(folder: Path) -> Index:
    databases = [await connect(f"{folder}/{part}") for part in ("indexes", "leases")]
    indexes = Indexes(databases[0], databases[1], Model("model", "a" * 64, 4))
    await indexes.create("x", {})
    index = await indexes.open("x")
    await index.put([record(f"{number}", text(number)) for number in range(COUNT)])
    return index


async def _copied(index: Index) -> None:
    await reembed._contents(index, [str(number) for number in range(COUNT)])


async def _filled(index: Index) -> None:
    await index.table.update({derived.TERMS: None, derived.WORDS: None}, where="true")
    assert await maintenance.fill(index) == COUNT


async def _sampled(index: Index) -> None:
    await index.table.update({derived.TERMS: None}, where="true")
    assert len(await words.sample(index)) == COUNT


async def _linked(index: Index) -> None:
    await links.find(index, links.Names())


READERS: dict[str, Callable[[Index], Awaitable[Any]]] = {
    "an upsert of the same texts": lambda index: documents.kept(
        index, {str(number): text(number) for number in range(COUNT)}
    ),
    "near-duplicates of a text": lambda index: duplicates.like(index, QUERY, 0.1, 5),
    "groups of near-duplicates": lambda index: duplicates.groups(index, 0.1),
    "passages": lambda index: passages.search(index, QUERY, "hybrid", Form(COUNT, 3, 100), None),
    "links in texts": _linked,
    "names of topics": lambda index: compute._counted(index, [str(n) for n in range(COUNT)]),
    "a new generation": _copied,
    "words of an earlier version": _filled,
    "a sample of words": _sampled,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_few_texts_at_a_time(
    tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    faults = Index.faults

    async def watched(self: Index, found: pa.Table, *parts: Part) -> list[tuple[Part, ...]]:
        if "text" in found.schema.names:
            taken.append(found["text"].nbytes)
        return await faults(self, found, *parts)

    async def scenario() -> None:
        index = await opened(tmp_path)
        monkeypatch.setattr(Index, "faults", watched)
        monkeypatch.setattr(documents, "READ_BYTES", 2 * CHARACTERS)
        await READERS[reader](index)

    asyncio.run(scenario())
    assert sum(taken) >= COUNT * CHARACTERS
    # offsets of the strings come on top
    assert max(taken) < 3 * CHARACTERS


def test_an_upsert_reads_no_stored_text_of_another_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    sound = Index.sound

    async def watched(self: Index, found: pa.Table, *parts: Part) -> pa.Table:
        rows.append(found.num_rows)
        return await sound(self, found, *parts)

    async def scenario() -> None:
        index = await opened(tmp_path)
        monkeypatch.setattr(Index, "sound", watched)
        assert await documents.kept(index, {"3": "other"}) == {}
        assert await documents.kept(index, {"3": "other", "4": "more", "none": "n"}) == {}
        assert sum(rows) == 0
        # a control: the same text is read and kept
        assert set(await documents.kept(index, {"3": text(3)})) == {"3"}
        assert set(await documents.kept(index, {"3": text(3), "4": "more"})) == {"3"}

    asyncio.run(scenario())


def test_few_large_groups_are_in_memory_at_once() -> None:
    async def scenario() -> None:
        inside = most = 0

        async def one(size: int) -> None:
            nonlocal inside, most
            async with documents.turn_of_size(size):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(one(1_000_000) for _ in range(20)))
        assert most == 4
        await asyncio.gather(*(one(1000) for _ in range(20)))
        assert most == 20

    asyncio.run(scenario())
