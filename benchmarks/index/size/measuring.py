"""Searches and single writes in a process that has nothing but the index."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
from lancedb import connect_async
from numpy.typing import NDArray

from benchmarks.index.size.building import FIELDS, NAME, K, Vectors, few_words, opened, record
from benchmarks.rig.processes import status
from service.index import maintenance
from service.index.documents import Index
from service.index.merging import Merged
from service.index.query import search
from service.index.query.filters import Condition, compile_filter
from service.index.query.reading import Query


async def measure(
    given: argparse.Namespace, queries: Vectors, truth: NDArray[np.int64]
) -> dict[str, Any]:
    """Search and write in this process."""
    indexes = await opened(given.folder, queries.shape[1], given.cache_bytes)
    only = compile_filter(Condition.model_validate({"field": "bucket", "eq": 0}), FIELDS)
    figures: dict[str, Any] = {"load": os.getloadavg()[0]}
    for name, answers, where in (("all", truth[0], None), ("1 %", truth[1], only)):
        # the first round reads the files
        for warm in (False, True):
            seconds, hits = [], 0
            for query, right in zip(queries, answers.tolist(), strict=True):
                began = time.perf_counter()
                index = await indexes.open(NAME)
                found = await search.cosine(index, Query(query, ""), K, where)
                seconds.append(time.perf_counter() - began)
                hits += len({int(hit.id) for hit in found} & set(right))
            if warm:
                p50, p99 = np.quantile(seconds, [0.5, 0.99]).tolist()
                figures[name] = {"p50": p50, "p99": p99, "recall": hits / answers.size}
    figures["memory"] = 1024 * status(os.getpid(), "RssAnon")
    index = await indexes.open(NAME)
    figures["vector index"] = await _size(given.folder)
    figures["writes"] = [seconds async for seconds in _written(index, queries, given.writes)]
    return figures


async def _written(index: Index, queries: Vectors, writes: int) -> AsyncIterator[float]:
    tasks: list[asyncio.Task[Merged]] = []
    for number in range(writes):
        yield await _write(index, -1 - number, queries[number % len(queries)])
        if number % maintenance.COMMITS == maintenance.COMMITS - 1 and all(t.done() for t in tasks):
            tasks.append(asyncio.create_task(maintenance.optimize(index.table)))
    await asyncio.gather(*tasks)


async def _write(index: Index, number: int, vector: Vectors) -> float:
    began = time.perf_counter()
    await index.put([record(number, vector, few_words(number))])
    hits = await search.cosine(index, Query(vector, ""), 2 * K, None)
    assert str(number) in {hit.id for hit in hits}
    return time.perf_counter() - began


async def _size(folder: Path) -> int:
    database = await connect_async(f"{folder}/indexes")
    [name] = (await database.list_tables()).tables
    table = await database.open_table(name)
    return sum(i.size_bytes or 0 for i in await table.list_indices() if i.columns == ["vector"])
