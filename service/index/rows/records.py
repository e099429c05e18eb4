"""Documents to Arrow rows and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from docsplit.ranking.words import lined
from service.index.rows import outline, terms, vectors
from service.index.rows.checksums import restate, seal, texts
from service.index.rows.fields import FieldType, column
from service.index.rows.outline import Outline
from service.index.rows.record import Record, Windows, digest
from service.index.rows.schema import OPTIONAL, PREFIX


def table(
    records: Sequence[Record],
    updated: Sequence[int],
    schema: pa.Schema,
    fields: dict[str, FieldType],
    revision: str,
) -> pa.Table:
    """Rows of an index, in the order of its schema."""
    flat = np.concatenate([r.encoding.vector for r in records]).astype(np.float32)
    digests = [digest(r.text, r.title, r.metadata, r.links, revision) for r in records]
    columns: dict[str, Any] = {
        "id": [r.id for r in records],
        "title": [r.title for r in records],
        "text": [r.text for r in records],
        "metadata": [json.dumps(r.metadata) for r in records],
        "links": [r.links for r in records],
        "digest": digests,
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(flat), len(flat) // len(records)),
        "windows": vectors.column(
            [r.encoding.windows for r in records], schema.field("windows").type
        ),
        "window_ends": [r.encoding.ends for r in records],
        "updated": updated,
        "deleted": [False] * len(records),
    }
    pairs = list(zip(records, digests, strict=True))
    if terms.COLUMN in schema.names:
        columns[terms.COLUMN] = [terms.sealed(r.text, held) for r, held in pairs]
    if terms.WORDS in schema.names:
        columns[terms.WORDS] = [lined(r.text, r.encoding.ends) for r in records]
    if outline.COLUMN in schema.names:
        columns[outline.COLUMN] = [outline.sealed(r.outline, held) for r, held in pairs]
    for name, kind in fields.items():
        columns[PREFIX + name] = [column(kind, r.metadata.get(name)) for r in records]
    return seal(pa.table(columns, schema=schema))


def completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with empty values of optional columns that the table got since they were made."""
    for field in OPTIONAL:
        if field.name in schema.names and field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names) if set(schema.names) == set(rows.schema.names) else rows


def outlines(rows: pa.Table) -> Iterator[Outline | None]:
    """The outlines of rows with the column ``digest``; none if the table lacks theirs."""
    stored = [None] * rows.num_rows
    if outline.COLUMN in rows.schema.names:
        stored = rows[outline.COLUMN].to_pylist()
    # one at a time: an opened one may have some MB
    return map(outline.opened, stored, texts(rows["digest"]))


def stamped(rows: pa.Table, updated: Sequence[int]) -> pa.Table:
    """The rows with other write times, in microseconds since the epoch."""
    position = rows.schema.get_field_index("updated")
    column = pa.array(updated, pa.int64())
    return restate(rows.set_column(position, rows.schema.field(position), column))


def tombstones(updated: Mapping[str, int], schema: pa.Schema) -> pa.Table:
    """Rows of deleted documents, by id and time of deletion.

    They have neither vector nor words, so searches never find them and need no filter.
    """
    count = len(updated)
    empty: dict[str, Any] = {
        "id": list(updated),
        "text": [""] * count,
        "metadata": ["{}"] * count,
        "links": [[]] * count,
        "digest": [""] * count,
        # an empty value of either form
        "windows": [b""] * count,
        "window_ends": [[]] * count,
        "updated": list(updated.values()),
        "deleted": [True] * count,
    }
    columns = {name: empty.get(name, [None] * count) for name in schema.names}
    return seal(pa.table(columns, schema=schema))


def windows(blob: bytes | None, ends: list[int]) -> Windows:
    """Windows from one of ``vectors.blobs``; the vectors are float32 ``[windows, dimensions]``."""
    matrix = np.frombuffer(blob or b"", dtype="<f2").reshape(len(ends), -1)
    return Windows(matrix.astype(np.float32), ends)
