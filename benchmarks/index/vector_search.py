"""Search among 100,000 vectors with this service's index, exact search and other engines.

    pip install faiss-cpu pgserver "psycopg[binary]"
    python -m benchmarks.index.vector_search --vectors vectors.npy

Vectors come from a ``.npy`` file (float32 ``[rows, dimensions]``), or are random: topics in a space
of few dimensions, like embeddings, plus noise. Queries are other rows, which are not stored. All
sides get the same queries, one at a time. They take turns in blocks of 50, so other load on the
machine affects all sides equally. Recall compares with the exact answer. "1 %" is a filter that one
row in a hundred passes.

This service's side does what ``POST /similar`` does between embedding and answering. It opens the
index, because every request must see the writes of others, and searches. The command names peers
that are not installed and leaves them out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.rig.peers import EF, SHARE, K, Peer, Vectors, installed

Search = Callable[[Vectors, bool], list[int]]

# queries of a side before the next side's turn; turns of one query would let the sides evict each
# other's data from the processor's caches
BLOCK = 50


@dataclass
class Side:
    """One way to search, and its measurements."""

    name: str
    search: Search
    build_seconds: float
    seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    hits: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})


def main() -> None:
    """Build, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows, queries = data(given.vectors, given.rows, given.queries)
    console = Console()
    with tempfile.TemporaryDirectory() as work:
        sides = [exact(rows)]
        with console.status("building: docsplit"):
            sides.append(docsplit(rows, Path(work)))
        sides += [
            Side(peer.name, _with_ef(peer), peer.build_seconds)
            for peer in installed(rows, Path(work) / "peers", console)
        ]
        measure(sides, queries)
    report(sides, rows, queries, given.json, console)


def data(path: Path | None, rows: int, queries: int) -> tuple[Vectors, Vectors]:
    """Unit rows to store, and unit rows as queries."""
    draw = np.random.default_rng(0)
    if path is not None:
        found = np.load(path)
        found = found[draw.permutation(len(found))[: rows + queries]]
    else:
        topics = draw.standard_normal((2000, 24))
        basis = draw.standard_normal((24, 384))
        near = topics[draw.integers(len(topics), size=rows + queries)]
        near = near + 0.5 * draw.standard_normal(near.shape)
        found = near @ basis + 0.5 * draw.standard_normal((rows + queries, 384))
    unit = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    return unit[queries:], unit[:queries]


def _with_ef(peer: Peer) -> Search:
    return lambda query, filtered: peer.search(query, filtered, EF)


def exact(rows: Vectors) -> Side:
    """numpy compares every row."""
    some = np.arange(0, len(rows), SHARE)
    few = np.ascontiguousarray(rows[some])

    def search(query: Vectors, filtered: bool) -> list[int]:
        scores = (few if filtered else rows) @ query
        top = np.argpartition(-scores, K)[:K]
        top = top[np.argsort(-scores[top])]
        return [int(i) for i in (some[top] if filtered else top)]

    return Side("exact, numpy", search, 0.0)


def docsplit(rows: Vectors, work: Path) -> Side:
    """An index of this service, optimized like in its maintenance."""
    from service.index import indexes
    from service.index.maintenance import optimize
    from service.index.query import search
    from service.index.query.filters import Condition, compile_filter
    from service.index.query.reading import Query
    from service.index.rows.records import Encoding, Record

    loop = asyncio.new_event_loop()
    started = time.perf_counter()
    fields: dict[str, Any] = {"bucket": "integer"}
    where = compile_filter(Condition.model_validate({"field": "bucket", "eq": 0}), fields)

    async def build() -> indexes.Indexes:
        databases = [await indexes.connect(str(work / part)) for part in ("lance", "leases")]
        model = indexes.Model("benchmark", "0" * 64, rows.shape[1])
        made = indexes.Indexes(databases[0], databases[1], model)
        await made.create("rows", fields)
        index = await made.open("rows")
        for begin in range(0, len(rows), 4096):
            part = range(begin, min(begin + 4096, len(rows)))
            records = [
                Record(
                    id=str(i),
                    text="text",
                    title=None,
                    metadata={"bucket": i % SHARE},
                    links=[],
                    encoding=Encoding(rows[i], rows[i : i + 1], [4]),
                )
                for i in part
            ]
            await index.put(records)
        await optimize(index.table)
        return made

    held = loop.run_until_complete(build())

    async def one(query: Vectors, filtered: bool) -> list[int]:
        index = await held.open("rows")
        hits = await search.cosine(index, Query(query, ""), K, where if filtered else None)
        return [int(hit.id) for hit in hits]

    return Side(
        "this service (LanceDB)",
        lambda query, filtered: loop.run_until_complete(one(query, filtered)),
        time.perf_counter() - started,
    )


def measure(sides: list[Side], queries: Vectors) -> None:
    """Run all queries on all sides, with and without the filter. Each block has a warm-up."""
    for first in track(range(0, len(queries), BLOCK), "blocks"):
        block = queries[first : first + BLOCK]
        for filtered in (False, True):
            truth: list[set[int]] = []
            for side in sides:
                side.search(block[0], filtered)
                answers = []
                for query in block:
                    began = time.perf_counter()
                    answers.append(set(side.search(query, filtered)))
                    side.seconds[filtered].append(time.perf_counter() - began)
                truth = truth or answers
                pairs = zip(truth, answers, strict=True)
                side.hits[filtered] += sum(len(right & found) for right, found in pairs)


def report(
    sides: list[Side], rows: Vectors, queries: Vectors, path: Path | None, console: Console
) -> None:
    """A table with one row for each side, in milliseconds."""
    table = Table(title=f"{len(rows):,} x {rows.shape[1]}, {len(queries)} queries, top {K}")
    for heading in ("", "build s", "p50 ms", "p99 ms", "recall", "1 %: p50", "p99", "recall"):
        table.add_column(heading, justify="right" if heading else "left")
    kept = []
    for side in sides:
        cells = [side.name, f"{side.build_seconds:.0f}"]
        figures: dict[str, Any] = {"name": side.name, "build_seconds": side.build_seconds}
        for filtered in (False, True):
            p50, p99 = np.quantile(side.seconds[filtered], [0.5, 0.99]) * 1000
            recall = side.hits[filtered] / (K * len(queries))
            cells += [f"{p50:.2f}", f"{p99:.2f}", f"{recall:.3f}"]
            figures["filtered" if filtered else "all"] = {
                "p50_ms": p50,
                "p99_ms": p99,
                "recall_at_10": recall,
            }
        kept.append(figures)
        table.add_row(*cells)
    console.print(table)
    console.print(f"{os.cpu_count()} cores")
    if path is not None:
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
