"""An index of millions of vectors: building, searching, memory, and writes of single documents.

    python -m benchmarks.index.size FOLDER --vectors vectors.npy

Vectors come from a ``.npy`` file (float32 or float16 ``[rows, dimensions]``), for example from
``benchmarks.index.drawn``. The first ones are queries, the others become documents of a few words.
If FOLDER has no index yet, the command builds it there. It finds the exact answers by comparing
with every vector. A process that has nothing but the index then sends the queries, one at a time,
as ``POST /similar`` does between embedding and answering, with and without a filter that one
document in a hundred passes. In the end it writes single documents and waits until each is found;
after every 64 of them maintenance runs, as in a service.

With ``--append`` the documents have no windows, and one commit appends all of them: it compares no
ids. That is for ten million.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lancedb import connect_async
from lancedb.index import IvfRq
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benchmarks.rig.processes import status
from benchmarks.rig.verdict import Verdict
from service.index import maintenance
from service.index.documents import Index
from service.index.indexes import Indexes, Model, connect
from service.index.query import search
from service.index.query.filters import Condition, compile_filter
from service.index.query.reading import Query
from service.index.rows import records
from service.index.rows.columns import prepare
from service.index.rows.fields import FieldType
from service.index.rows.record import Encoding, Record

Vectors = NDArray[np.float32]

NAME = "rows"
K = 10
SHARE = 100
# rows that are written, or compared with all queries, at once
PART = 4096
FIELDS: dict[str, FieldType] = {"bucket": "integer"}
# what a service keeps of an index in memory by default
CACHE_BYTES = 512 * 2**20
# files in FOLDER: the exact answers of the queries, and figures of the building
TRUTH, BUILT = "truth.npy", "built.json"
# rows of a file if all are appended at once
FILE_ROWS = 2**20


def main() -> None:
    """Build, find the exact answers, measure in another process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--writes", type=int, default=100)
    parser.add_argument("--append", action="store_true", help="all in one commit, without windows")
    parser.add_argument("--cache-bytes", type=int, default=CACHE_BYTES)
    parser.add_argument("--json", type=Path, help="adds a line with the figures to this file")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    vectors = np.load(given.vectors, mmap_mode="r")
    queries = np.array(vectors[: given.queries], np.float32)
    if given.measure:
        truth = np.load(given.folder / TRUTH)
        print(json.dumps(asyncio.run(measure(given, queries, truth))))
        return
    console = Console()
    rows = vectors[given.queries :]
    if not (given.folder / "indexes").exists():
        make = append(given.folder, rows, console) if given.append else None
        built = asyncio.run(make or build(given.folder, rows, console))
        (given.folder / BUILT).write_text(json.dumps(built))
    if not (given.folder / TRUTH).exists():
        np.save(given.folder / TRUTH, exact(rows, queries))
    command = [sys.executable, "-m", "benchmarks.index.size", *sys.argv[1:], "--measure"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures = {"rows": len(rows), **json.loads((given.folder / BUILT).read_text())}
    figures |= json.loads(done.stdout)
    report(figures, rows.shape, console)
    if given.json is not None:
        with given.json.open("a") as file:
            file.write(json.dumps(figures) + "\n")


async def opened(folder: Path, dimensions: int, cache_bytes: int = CACHE_BYTES) -> Indexes:
    """The indexes below a folder, with the caches of a service."""
    from service.index.storage.database import Caches

    caches = Caches(cache_bytes)
    databases = [await connect(f"{folder}/{part}", caches=caches) for part in ("indexes", "leases")]
    return Indexes(databases[0], databases[1], Model("benchmark", "0" * 64, dimensions))


async def build(
    folder: Path, rows: Vectors, console: Console, text: Callable[[int], str] = lambda _: "text"
) -> dict[str, float]:
    """Write all rows, with texts by their numbers; then do what maintenance does.

    Returns:
        Seconds, and bytes on the disk.
    """
    indexes = await opened(folder, rows.shape[1])
    await indexes.create(NAME, FIELDS)
    index = await indexes.open(NAME)
    began = time.perf_counter()
    for first in track(range(0, len(rows), PART), "writing", console=console):
        part = np.array(rows[first : first + PART], np.float32)
        numbered = enumerate(part, first)
        await index.put([record(number, vector, text(number)) for number, vector in numbered])
    written = time.perf_counter()
    await maintenance.optimize(index.table, step=lambda what: console.print(what))
    return _built(folder, began, written, console)


async def append(folder: Path, rows: Vectors, console: Console) -> dict[str, float]:
    """Append all rows in one commit, without windows; then build the indexes that searches use."""
    indexes = await opened(folder, rows.shape[1])
    await indexes.create(NAME, FIELDS)
    index = await indexes.open(NAME)
    began = time.perf_counter()

    def parts() -> Iterator[pa.RecordBatch]:
        for first in track(range(0, len(rows), PART), "writing", console=console):
            part = np.array(rows[first : first + PART], np.float32)
            made = [record(n, vector, windows=0) for n, vector in enumerate(part, first)]
            times = [1] * len(made)
            fields, revision = index.identity.fields, index.identity.revision
            yield from records.table(made, times, index.schema, fields, revision).to_batches()

    await index.table.add(pa.RecordBatchReader.from_batches(index.schema, parts()))
    written = time.perf_counter()
    await prepare(index.table, again=True)
    config = IvfRq(distance_type="cosine", num_bits=maintenance.VECTOR_BITS)
    await index.table.create_index("vector", config=config)
    return _built(folder, began, written, console)


def _built(folder: Path, began: float, written: float, console: Console) -> dict[str, float]:
    ended = time.perf_counter()
    size = sum(path.stat().st_size for path in folder.joinpath("indexes").rglob("*.*"))
    console.print(
        f"written in {written - began:.0f} s, optimized in {ended - written:.0f} s, "
        f"{size / 1e9:.2f} GB, former versions included"
    )
    return {"writing": written - began, "optimizing": ended - written, "bytes": size}


def record(number: int, vector: Vectors, text: str = "text", windows: int = 1) -> Record:
    """A document of one window, or of none."""
    return Record(
        id=str(number),
        text=text,
        title=None,
        metadata={"bucket": number % SHARE},
        links=[],
        encoding=Encoding(vector, vector[None][:windows], [len(text)][:windows]),
    )


def exact(rows: Vectors, queries: Vectors) -> NDArray[np.int64]:
    """The nearest rows of each query, ``[2, queries, K]``; the second time those of the filter."""
    best = np.full((2, len(queries), K), -2.0, np.float32)
    found = np.full((2, len(queries), K), -1, np.int64)
    for first in track(range(0, len(rows), SHARE * PART // 4), "exact answers"):
        part = np.array(rows[first : first + SHARE * PART // 4], np.float32)
        scores = queries @ part.T
        numbers = np.arange(first, first + len(part))
        for side, step in enumerate((1, SHARE)):
            some, of = scores[:, ::step], numbers[::step]
            top = np.argpartition(-some, min(K, some.shape[1] - 1), axis=1)[:, :K]
            both = np.concatenate([best[side], np.take_along_axis(some, top, 1)], axis=1)
            names = np.concatenate([found[side], of[top]], axis=1)
            order = np.argsort(-both, axis=1)[:, :K]
            best[side] = np.take_along_axis(both, order, 1)
            found[side] = np.take_along_axis(names, order, 1)
    return found


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
    tasks: list[asyncio.Task[None]] = []
    for number in range(writes):
        yield await _write(index, -1 - number, queries[number % len(queries)])
        if number % maintenance.COMMITS == maintenance.COMMITS - 1 and all(t.done() for t in tasks):
            tasks.append(asyncio.create_task(maintenance.optimize(index.table)))
    await asyncio.gather(*tasks)


async def _write(index: Index, number: int, vector: Vectors) -> float:
    began = time.perf_counter()
    await index.put([record(number, vector)])
    hits = await search.cosine(index, Query(vector, ""), 2 * K, None)
    assert str(number) in {hit.id for hit in hits}
    return time.perf_counter() - began


async def _size(folder: Path) -> int:
    database = await connect_async(f"{folder}/indexes")
    [name] = (await database.list_tables()).tables
    table = await database.open_table(name)
    return sum(i.size_bytes or 0 for i in await table.list_indices() if i.columns == ["vector"])


def report(figures: dict[str, Any], shape: tuple[int, ...], console: Console) -> None:
    """Print what was measured, and whether the aims for a million hold."""
    console.print(f"{shape[0]:,} x {shape[1]}, load {figures['load']:.1f} at the start")
    for name in ("all", "1 %"):
        own = figures[name]
        p50, p99 = own["p50"] * 1000, own["p99"] * 1000
        console.print(f"{name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, recall@{K} {own['recall']:.3f}")
    console.print(f"vector index {figures['vector index'] / 1e6:,.0f} MB")
    verdicts = [
        Verdict("p99, ms", figures["all"]["p99"] * 1000, 30, most=True),
        Verdict("recall", figures["all"]["recall"], 0.97),
        Verdict("recall under the filter", figures["1 %"]["recall"], 0.95),
        Verdict("anonymous memory, MB", figures["memory"] / 1e6, 1500, most=True),
    ]
    if figures["writes"]:
        writes = np.array(figures["writes"]) * 1000
        tenth = -(-len(writes) // 10)
        console.print(
            f"single writes until they are found: p50 {np.median(writes):.0f} ms, the first tenth "
            f"{np.median(writes[:tenth]):.0f} ms, the last {np.median(writes[-tenth:]):.0f} ms"
        )
        verdicts.append(Verdict("write, ms", float(np.median(writes)), 300, most=True))
    for verdict in verdicts:
        held = "held" if verdict.held else "missed"
        console.print(f"{verdict.aim}: {verdict.figure:.4g} ({verdict.bound:g}) {held}")


if __name__ == "__main__":
    main()
