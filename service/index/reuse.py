"""Vectors that an index already has: a document with unchanged text is not embedded again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from lancedb.expr import col, lit

from service.index.documents import Index
from service.index.rows import checksums, records, vectors
from service.index.rows.checksums import Part
from service.index.rows.record import Encoding, Record
from service.index.rows.vectors import matrix

# reads texts and windows of this many documents at once
_CHUNK = 128
PARTS = (Part.TEXT, Part.VECTOR, Part.WINDOWS)


async def kept(index: Index, texts: Mapping[str, str]) -> dict[str, Encoding]:
    """Encodings of the documents that the index has, undamaged, with the same text.

    Args:
        texts: by id.
    """
    found: dict[str, Encoding] = {}
    for ids in _chunks(list(texts)):
        columns = checksums.columns(*PARTS)
        rows = await index.select(col("id").isin([lit(i) for i in ids]), columns, len(ids))
        rows = await index.sound(rows, *PARTS)
        if not rows.num_rows:
            continue
        held = rows.select(["id", "text", "window_ends"]).to_pylist()
        for vector, blob, row in zip(
            matrix(rows), vectors.blobs(rows["windows"]), held, strict=True
        ):
            if row["text"] == texts[row["id"]]:
                windows = records.windows(blob, row["window_ends"])
                found[row["id"]] = Encoding(vector, windows.vectors, windows.ends)
    return found


async def whole(index: Index, document_id: str) -> tuple[Record, int]:
    """A document as the index stores it, and when it was written, in microseconds.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the stored document does not match its checksums.
    """
    found = await index.one(document_id, Part.HEAD, Part.LINKS, *PARTS)
    [row] = found.drop_columns(["vector", "windows", "digest", "deleted"]).to_pylist()
    windows = records.windows(vectors.blobs(found["windows"])[0], row["window_ends"])
    record = Record(
        id=row["id"],
        text=row["text"],
        title=row["title"],
        metadata=json.loads(row["metadata"]),
        links=row["links"],
        encoding=Encoding(matrix(found)[0], windows.vectors, windows.ends),
    )
    return record, row["updated"]


def _chunks(ids: Sequence[str]) -> Sequence[Sequence[str]]:
    return [ids[first : first + _CHUNK] for first in range(0, len(ids), _CHUNK)]
