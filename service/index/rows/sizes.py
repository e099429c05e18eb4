"""Documents in groups whose texts and windows fit into memory together.

A text has up to 16 MB, four times as much as a Python string. A reader that takes some documents at
a time by their number could need any amount of memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import numpy as np
import pyarrow as pa
from lancedb.expr import col, lit
from lancedb.table import AsyncTable

from service import precedence
from service.embedding.tokenising import FairSemaphore
from service.index import row_cache
from service.index.rows.checksums import Part, texts

# columns that ``of`` needs
COLUMNS = ["id", "window_ends"]
# characters of texts and bytes of windows that are read at a time, besides those of one document
READ_BYTES = 8 * 2**20
# documents of one group
MOST = 256
# groups of more than ``precedence.LARGE`` that all requests of a process have in memory at once
_large = FairSemaphore(4)


def characters(found: pa.Table) -> dict[str, int]:
    """Characters of the texts of documents, by id.

    Args:
        found: with ``COLUMNS``.
    """
    lengths, _ = row_cache.lengths(found["window_ends"])
    return dict(zip(texts(found["id"]), lengths.tolist(), strict=True))


async def of_text(table: AsyncTable, document_id: str) -> int:
    """Characters of the text of one document; 0 if the table has no such row."""
    # a condition that it is not deleted takes half as long again
    query = table.query().where(col("id").eq(lit(document_id))).select(COLUMNS).limit(1)
    return sum(characters(await query.to_arrow()).values())


def of(found: pa.Table, width: int, *parts: Part) -> dict[str, int]:
    """Characters and bytes of some parts of documents, by id; only texts and windows count.

    Args:
        found: with ``COLUMNS``.
        width: bytes of a window.
        parts: of the documents.
    """
    lengths, windows = row_cache.lengths(found["window_ends"])
    counted = lengths.astype(np.int64) * (Part.TEXT in parts)
    counted += windows.astype(np.int64) * width * (Part.WINDOWS in parts)
    return dict(zip(texts(found["id"]), counted.tolist(), strict=True))


def groups(sizes: Mapping[str, int], most: int | None = None) -> Iterator[list[str]]:
    """Documents in their order, in groups of at most ``most``; a larger one is by itself.

    Args:
        sizes: by id.
        most: of a group; ``READ_BYTES`` by default.
    """
    most = READ_BYTES if most is None else most
    group: list[str] = []
    total = 0
    for name, size in sizes.items():
        if group and (total + size > most or len(group) == MOST):
            yield group
            group, total = [], 0
        group.append(name)
        total += size
    if group:
        yield group


@asynccontextmanager
async def turn(size: int) -> AsyncIterator[None]:
    """Wait until few large groups of other requests are in memory, and hold a place for one."""
    if size <= precedence.LARGE:
        yield
    else:
        async with _large.turn():
            yield
