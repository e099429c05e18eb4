"""Indexes of drawn vectors, and the exact answers to queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from joblib import Parallel, delayed
from lancedb.index import IvfRq
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from service.index import maintenance
from service.index.indexes import Indexes, Model, connect
from service.index.rows import records
from service.index.rows.fields import FieldType
from service.index.rows.records import Encoding, Record
from service.index.rows.schema import prepare

Vectors = NDArray[np.float32]

NAME = "rows"
K = 10
SHARE = 100
# rows that are written, or compared with all queries, at once
PART = 4096
FIELDS: dict[str, FieldType] = {"bucket": "integer"}
# what a service keeps of an index in memory by default
CACHE_BYTES = 512 * 2**20


async def opened(folder: Path, dimensions: int, cache_bytes: int = CACHE_BYTES) -> Indexes:
    """The indexes below a folder, with the caches of a service."""
    from service.index.storage.database import Caches

    caches = Caches(cache_bytes)
    databases = [await connect(f"{folder}/{part}", caches=caches) for part in ("indexes", "leases")]
    return Indexes(databases[0], databases[1], Model("benchmark", "0" * 64, dimensions))


def few_words(number: int) -> str:
    """The text of every document whose words are not searched."""
    return "text"


async def build(
    folder: Path, rows: Vectors, console: Console, text: Callable[[int], str] = few_words
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


async def append(
    folder: Path, rows: Vectors, console: Console, text: Callable[[int], str] = few_words
) -> dict[str, float]:
    """Append all rows in one commit, without windows; then build the indexes that searches use."""
    indexes = await opened(folder, rows.shape[1])
    await indexes.create(NAME, FIELDS)
    index = await indexes.open(NAME)
    began = time.perf_counter()
    given = (text, index.schema, index.identity.fields, index.identity.revision)
    made = Parallel(n_jobs=-1, return_as="generator")(
        delayed(_batches)(rows[first : first + PART], first, *given)
        for first in range(0, len(rows), PART)
    )

    def parts() -> Iterator[pa.RecordBatch]:
        count = -(-len(rows) // PART)
        for batches in track(made, "writing", count, console=console):
            yield from batches

    await index.table.add(pa.RecordBatchReader.from_batches(index.schema, parts()))
    written = time.perf_counter()
    await prepare(index.table, again=True)
    config = IvfRq(distance_type="cosine", num_bits=maintenance.VECTOR_BITS)
    await index.table.create_index("vector", config=config)
    return _built(folder, began, written, console)


def _batches(
    part: NDArray[Any],
    first: int,
    text: Callable[[int], str],
    schema: pa.Schema,
    fields: dict[str, FieldType],
    revision: str,
) -> list[pa.RecordBatch]:
    numbered = enumerate(part.astype(np.float32), first)
    made = [record(number, vector, text(number), windows=0) for number, vector in numbered]
    times = [1] * len(made)
    found: list[pa.RecordBatch] = records.table(made, times, schema, fields, revision).to_batches()
    return found


def _built(folder: Path, began: float, written: float, console: Console) -> dict[str, float]:
    ended = time.perf_counter()
    size = sum(path.stat().st_size for path in folder.joinpath("indexes").rglob("*.*"))
    console.print(
        f"written in {written - began:.0f} s, optimized in {ended - written:.0f} s, "
        f"{size / 1e9:.2f} GB, former versions included"
    )
    return {"writing": written - began, "optimizing": ended - written, "bytes": size}


def record(number: int, vector: Vectors, text: str, windows: int = 1) -> Record:
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
