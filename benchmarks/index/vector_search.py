"""Search among 100,000 vectors with this service's index, exact search, faiss and pgvector.

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
import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

Vectors = NDArray[np.float32]
Search = Callable[[Vectors, bool], list[int]]

K = 10
SHARE = 100
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
        for package, make in (("lancedb", docsplit), ("faiss", faiss), ("pgserver", pgvector)):
            if importlib.util.find_spec(package) is None:
                console.print(f"{package} is not installed: left out")
                continue
            with console.status(f"building: {make.__name__}"):
                sides.append(make(rows, Path(work)))
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
    from service.index.rows.record import Encoding, Record

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


def faiss(rows: Vectors, work: Path) -> Side:
    """HNSW with 8-bit codes, the same kind of index. A filter is a selector of ids."""
    import faiss as library

    started = time.perf_counter()
    index = library.IndexHNSWSQ(
        rows.shape[1], library.ScalarQuantizer.QT_8bit, 32, library.METRIC_INNER_PRODUCT
    )
    index.hnsw.efConstruction = 200
    index.train(rows)
    index.add(rows)
    chosen = library.IDSelectorBatch(np.arange(0, len(rows), SHARE))
    plain = library.SearchParametersHNSW(efSearch=200)
    some = library.SearchParametersHNSW(efSearch=200, sel=chosen)

    def search(query: Vectors, filtered: bool) -> list[int]:
        _, found = index.search(query[None], K, params=some if filtered else plain)
        return [int(i) for i in found[0]]

    return Side("faiss HNSW SQ8", search, time.perf_counter() - started)


def pgvector(rows: Vectors, work: Path) -> Side:
    """PostgreSQL with an HNSW index. Filters scan it iteratively if the version supports it."""
    import pgserver
    import psycopg

    started = time.perf_counter()
    server = pgserver.get_server(work / "postgres", cleanup_mode="stop")
    connection = psycopg.connect(server.get_uri(), autocommit=True)
    connection.execute("CREATE EXTENSION vector")
    width = rows.shape[1]
    connection.execute(f"CREATE TABLE rows (id int PRIMARY KEY, bucket int, v vector({width}))")
    with connection.cursor().copy("COPY rows FROM STDIN") as copy:
        for number, row in enumerate(rows):
            copy.write_row((number, number % SHARE, _text(row)))
    connection.execute("SET maintenance_work_mem = '1GB'")
    connection.execute("CREATE INDEX ON rows USING hnsw (v vector_ip_ops)")
    connection.execute("CREATE INDEX ON rows (bucket)")
    connection.execute("ANALYZE rows")
    connection.execute("SET hnsw.ef_search = 200")
    with suppress(psycopg.Error):
        connection.execute("SET hnsw.iterative_scan = strict_order")

    def search(query: Vectors, filtered: bool) -> list[int]:
        where = "WHERE bucket = 0" if filtered else ""
        found = connection.execute(
            f"SELECT id FROM rows {where} ORDER BY v <#> %s::vector LIMIT {K}", (_text(query),)
        )
        return [row[0] for row in found]

    return Side("pgvector HNSW", search, time.perf_counter() - started)


def _text(row: Vectors) -> str:
    return "[" + ",".join(f"{value:.7g}" for value in row.tolist()) + "]"


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
