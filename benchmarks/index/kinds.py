"""LanceDB's vector indexes: building time, size, time of a search and recall.

    python -m benchmarks.index.kinds vectors.npy --rows 100000

Vectors come from a ``.npy`` file (float32 ``[rows, dimensions]``). The first ones are queries, the
next ``--rows`` are stored. Each index is built, then searched in turns of 50 queries, so that
other work on the machine affects all alike. A search reads 1.5 times the wanted rows, or as many
as ``--wide`` says, and ranks them by their full vectors, as the service does. "1 %" is a filter
that one row in a hundred passes.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import BTree, IvfHnswSq, IvfRq
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

Vectors = NDArray[np.float32]

K, SHARE, TURN, PART = 10, 100, 50, 50_000
KINDS: dict[str, Any] = {
    "HNSW, 8 bits": IvfHnswSq(distance_type="cosine"),
    **{
        f"IVF, RaBitQ {bits} bits": IvfRq(distance_type="cosine", num_bits=bits)
        for bits in (1, 2, 4, 8)
    },
}


@dataclass(slots=True)
class Side:
    """One index: its table, building time in seconds, size in bytes, and measurements."""

    name: str
    wide: int
    table: Any
    built: float
    size: int
    seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    hits: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})


def main() -> None:
    """Build, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--wide", type=int, nargs="+", default=[15])
    parser.add_argument("--only", nargs="+", default=list(KINDS), metavar="INDEX")
    given = parser.parse_args()
    held = np.load(given.vectors, mmap_mode="r")
    queries = np.array(held[: given.queries])
    rows = np.array(held[given.queries : given.queries + given.rows])
    with tempfile.TemporaryDirectory() as work:
        asyncio.run(compare(work, rows, queries, given.only, given.wide))


async def compare(
    work: str, rows: Vectors, queries: Vectors, names: list[str], wide: list[int]
) -> None:
    """Build all, search in turns, print."""
    console = Console(width=110)
    database = await lancedb.connect_async(work)
    sides = []
    for number, name in enumerate(names):
        with console.status(f"building {name}"):
            table = await database.create_table(f"t{number}", _table(rows[:PART], 0))
            for first in range(PART, len(rows), PART):
                await table.add(_table(rows[first : first + PART], first))
            await table.create_index("bucket", config=BTree())
            began = time.perf_counter()
            await table.create_index("vector", config=KINDS[name])
            built = time.perf_counter() - began
        held = [one for one in await table.list_indices() if one.columns == ["vector"]]
        sides += [Side(name, some, table, built, held[0].size_bytes or 0) for some in wide]
    for first in track(range(0, len(queries), TURN), "searching", console=console):
        for side in sides:
            for filtered in (False, True):
                await _turn(side, rows, queries[first : first + TURN], filtered)
    report(sides, len(queries), console)


async def _turn(side: Side, rows: Vectors, queries: Vectors, filtered: bool) -> None:
    step = SHARE if filtered else 1
    await _search(side, queries[0], filtered)
    for query in queries:
        scores = rows[::step] @ query
        right = {int(place) * step for place in np.argpartition(-scores, K)[:K]}
        began = time.perf_counter()
        found = await _search(side, query, filtered)
        side.seconds[filtered].append(time.perf_counter() - began)
        side.hits[filtered] += len(right & found)


async def _search(side: Side, query: Vectors, filtered: bool) -> set[int]:
    search = side.table.query().nearest_to(query).column("vector").distance_type("cosine").ef(100)
    if filtered:
        search = search.where("bucket = 0").nprobes(50)
    found = await search.select(["_distance"]).with_row_id().limit(side.wide).to_arrow()
    taken = side.table.take_row_ids(found["_rowid"].to_pylist()).select(["id", "vector"])
    near = await taken.to_arrow()
    vectors = near["vector"].combine_chunks().flatten().to_numpy().reshape(-1, query.size)
    best = np.argsort(-(vectors @ query))[:K]
    return {near["id"][int(place)].as_py() for place in best}


def _table(rows: Vectors, first: int) -> pa.Table:
    numbers = np.arange(first, first + len(rows))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    return pa.table({"id": numbers, "bucket": numbers % SHARE, "vector": vectors})


def report(sides: list[Side], queries: int, console: Console) -> None:
    """One row for each index."""
    table = Table()
    heads = ("", "reads", "build s", "MB", "p50 ms", "p99", "recall", "1 %: p50", "p99", "recall")
    for heading in heads:
        table.add_column(heading, justify="right" if heading else "left")
    for side in sides:
        cells = [side.name, str(side.wide), f"{side.built:.0f}", f"{side.size / 1e6:.0f}"]
        for filtered in (False, True):
            p50, p99 = np.quantile(side.seconds[filtered], [0.5, 0.99]) * 1000
            recall = side.hits[filtered] / (K * queries)
            cells += [f"{p50:.1f}", f"{p99:.1f}", f"{recall:.3f}"]
        table.add_row(*cells)
    console.print(table)


if __name__ == "__main__":
    main()
