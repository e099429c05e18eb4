"""Examples, and documents without labels, out of an index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc
from lancedb.expr import col, lit

from service.documents.pooling import Vectors
from service.heads.selftraining import MOST_UNLABELLED
from service.index import checksums
from service.index.checksums import Part
from service.index.documents import Index, matrix
from service.index.faults import DamagedError, InvalidError

# ids asked for at once
CHUNK = 500
PARTS = (Part.TEXT, Part.VECTOR)
MOST_CHARACTERS = 256_000_000


async def documents(index: Index, ids: Sequence[str]) -> tuple[list[str], Vectors]:
    """Texts of documents and their unit vectors, float32 ``[ids, dimensions]``.

    Args:
        ids: each once.

    Raises:
        InvalidError: some are not there, or the texts are too large to keep.
        DamagedError: what is stored of one does not fit its checksums.
    """
    texts: list[str] = []
    vectors: list[Vectors] = []
    missing: list[int] = []
    size = 0
    for first in range(0, len(ids), CHUNK):
        chunk = ids[first : first + CHUNK]
        where = col("id").isin([lit(name) for name in chunk])
        found = await index.select(where, checksums.columns(*PARTS), len(chunk))
        if (await index.sound(found, *PARTS)).num_rows < found.num_rows:
            raise DamagedError
        rows = {name: row for row, name in enumerate(found["id"].to_pylist())}
        missing += [first + i for i, name in enumerate(chunk) if name not in rows]
        order = [rows[name] for name in chunk if name in rows]
        held = found["text"].to_pylist()
        texts += [held[row] for row in order]
        if order:
            vectors.append(matrix(found)[order])
        size += sum(map(len, held))
        if size > MOST_CHARACTERS:
            raise InvalidError(
                f"ids: their texts, which are stored with the classifier, hold more than "
                f"{MOST_CHARACTERS} characters: give fewer",
                "ids",
            )
    if missing:
        raise InvalidError(
            f"ids: {len(missing)} of {len(ids)} are not in the index, the first at position "
            f"{missing[0]}",
            "ids",
        )
    return texts, np.concatenate(vectors)


async def unlabelled(index: Index) -> Vectors:
    """Unit vectors of a sample of an index's documents, the same one every time.

    Raises:
        InvalidError: the index is empty.
    """
    rows = await index.table.count_rows()
    draw = np.random.default_rng(0)
    chosen = np.sort(draw.permutation(rows)[:MOST_UNLABELLED])
    if rows:
        taken = index.table.take_offsets(chosen.tolist())
        found = await taken.select([*checksums.columns(Part.VECTOR), "deleted"]).to_arrow()
        held = matrix(await index.sound(found.filter(~pc.field("deleted")), Part.VECTOR))
        if len(held):
            return held
    raise InvalidError("unlabelled: that index holds no documents", "unlabelled")
