"""The memory of a process for indexes is limited."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from service.index.indexes import Indexes, Model
from service.index.maintenance import maintain, optimize
from service.index.query import search
from service.index.query.reading import Query
from service.index.storage import database
from service.index.storage.database import Caches, connect
from service.metrics import Metrics
from tests.index.processes import record

BYTES = 10_000


async def opened(folder: Path, caches: Caches) -> Indexes:
    """The indexes below a folder."""
    databases = [await connect(f"{folder}/{part}", caches=caches) for part in ("a", "b")]
    return Indexes(databases[0], databases[1], Model("model", "a" * 64, 4))


async def kept(folder: Path, bound: int) -> int:
    """Bytes in the caches after searches of all kinds."""
    shown = Metrics().index_cache_bytes
    caches = Caches(bound, shown)
    indexes = await opened(folder, caches)
    if await indexes.create("x", {}):
        for number in range(10):
            await (await indexes.open("x")).put([record(f"{number}", f"word {number}" * 50)])
        await optimize((await indexes.open("x")).table)
    index = await indexes.open("x")
    query = Query(np.array([1, 0, 0, 0], dtype=np.float32), "word 3")
    for mode in (search.cosine, search.words, search.hybrid):
        assert len(await mode(index, query, 5, None)) == 5
    assert await index.has("7")
    if caches.row_cache._loading is not None:
        await caches.row_cache._loading
    assert caches.row_cache.size_bytes <= bound // 8
    [sample] = next(iter(shown.collect())).samples
    assert sample.value == caches.session.size_bytes + caches.row_cache.size_bytes
    return int(sample.value)


async def maintained(indexes: Indexes, number: int) -> None:
    """Write a document, and do what its write leaves."""
    index = await indexes.writable("x")
    await index.put([record(f"{number}", f"word {number}")])
    await maintain(indexes, "x", index)


def test_caches_are_replaced_with_the_indexes_over_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a quarter of them may be former ones
    monkeypatch.setattr(database, "LEAST_WORD_INDEXES", 20)
    monkeypatch.setattr(database, "LOOK_SECONDS", 0)

    async def scenario() -> None:
        caches = Caches(1_000_000)
        indexes = await opened(tmp_path, caches)
        await indexes.create("x", {})
        first = caches.session
        for number in range(4):
            await maintained(indexes, number)
        early = await indexes.open("x", still=True)
        # reads that find no new index over words do not count
        for _ in range(10):
            await indexes.open("x", still=True)
        assert caches.session is first
        for number in range(4, 8):
            await maintained(indexes, number)
        assert caches.session is not first
        query = Query(np.array([1, 0, 0, 0], dtype=np.float32), "word")
        late = await indexes.open("x", still=True)
        assert len(await search.words(late, query, 10, None)) == 8
        # a request that began with the former caches goes on
        assert len(await search.words(early, query, 10, None)) == 4
        # all connections left the former caches
        held = first.size_bytes
        await maintained(indexes, 8)
        await search.words(await indexes.open("x", still=True), query, 10, None)
        assert first.size_bytes == held

    asyncio.run(scenario())


def test_many_indexes_do_not_replace_the_caches_until_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LEAST_WORD_INDEXES", 6)

    async def scenario() -> None:
        caches = Caches(1_000_000)
        indexes = await opened(tmp_path, caches)
        first = caches.session
        for number in range(6):
            await indexes.create(f"x{number}", {})
            await indexes.open(f"x{number}", still=True)
        assert caches.session is first
        await indexes.create("x6", {})
        await indexes.open("x6", still=True)
        assert caches.session is not first

    asyncio.run(scenario())


def test_the_caches_of_indexes_keep_their_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        assert await kept(tmp_path, 100_000_000) > BYTES
        assert await kept(tmp_path, BYTES) <= BYTES
        assert await kept(tmp_path, 0) <= BYTES

    asyncio.run(scenario())
