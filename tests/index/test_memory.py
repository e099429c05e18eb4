"""The memory of a process for indexes is limited."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from service.index.indexes import Indexes, Model
from service.index.maintenance import optimize
from service.index.query import search
from service.index.query.reading import Query
from service.index.storage.database import bounded, connect
from service.metrics import Metrics
from tests.index.processes import record

BYTES = 10_000


async def kept(folder: Path, bound: int) -> int:
    """Bytes in the caches after searches of all kinds."""
    shown = Metrics().index_cache_bytes
    session = bounded(bound, shown)
    databases = [await connect(f"{folder}/{part}", session=session) for part in ("a", "b")]
    indexes = Indexes(databases[0], databases[1], Model("model", "a" * 64, 4))
    if await indexes.create("x", {}):
        for number in range(10):
            await (await indexes.open("x")).put([record(f"{number}", f"word {number}" * 50)])
        await optimize((await indexes.open("x")).table)
    index = await indexes.open("x")
    query = Query(np.array([1, 0, 0, 0], dtype=np.float32), "word 3")
    for mode in (search.cosine, search.words, search.hybrid):
        assert len(await mode(index, query, 5, None)) == 5
    assert await index.has("7")
    [sample] = next(iter(shown.collect())).samples
    assert sample.value == session.size_bytes
    return int(sample.value)


def test_the_caches_of_lancedb_keep_their_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        assert await kept(tmp_path, 100_000_000) > BYTES
        assert await kept(tmp_path, BYTES) <= BYTES
        assert await kept(tmp_path, 0) <= BYTES

    asyncio.run(scenario())
