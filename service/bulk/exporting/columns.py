"""The columns of an exported index.

The columns of the document are those that ``docsplit-index`` reads from a table. It ignores the
others, which ``docsplit.corpora.tables.DERIVED`` marks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from docsplit.corpora.tables import DERIVED
from service.index.documents import Index
from service.index.rows import records, vectors
from service.index.rows.schema import PREFIX

_OUTLINE = pa.struct(
    {
        "pages": pa.list_(pa.int32()),
        "headings": pa.list_(pa.struct({"start": pa.int32(), "title": pa.string()})),
    }
)
# what stands in the manifest
MEANINGS = {
    "id": "the document's id",
    "title": "the title, if it has one",
    "text": "the whole text",
    "metadata": "a JSON object",
    "links": "ids of the documents that it cites",
    "outline": "first characters of pages and headings, of a document from a file",
    "version": "time of the last write, in microseconds since 1970; grows with each write",
    "vector": "the document's vector, of unit length",
    "windows": "the vectors of its windows, of unit length",
    "window_ends": "one past the last character of each window, counted in code points",
}
_TYPED = "a declared field of the metadata; dates are microseconds since 1970"


def meaning(column: str) -> str:
    """What a column of an export holds."""
    return MEANINGS.get(column, _TYPED)


def schema(index: Index, *, windows: bool) -> pa.Schema:
    """The schema of an export.

    Args:
        index: to export.
        windows: whether to write the vectors of windows and their ends.
    """
    held = index.schema
    dimensions = held.field("vector").type.list_size
    document = {
        "id": pa.string(),
        "title": pa.string(),
        "text": pa.string(),
        "metadata": pa.string(),
        "links": pa.list_(pa.string()),
        "outline": _OUTLINE,
    }
    derived = {"version": pa.int64(), "vector": held.field("vector").type}
    if windows:
        derived |= {"windows": vectors.kind(dimensions), "window_ends": pa.list_(pa.int32())}
    derived |= {f.name: f.type for f in held if f.name.startswith(PREFIX)}
    identity = index.identity
    return pa.schema(
        [
            *(pa.field(name, kind, nullable=name != "id") for name, kind in document.items()),
            *(pa.field(name, kind, metadata={DERIVED: "true"}) for name, kind in derived.items()),
        ],
        metadata={"docsplit.bundle": identity.model, "docsplit.revision": identity.revision},
    )


def rows(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """Stored rows as an export has them.

    Args:
        found: sound rows of documents, with all columns of the index.
        schema: of the export.
    """
    columns: dict[str, Any] = {name: found[name] for name in schema.names if name in _names(found)}
    columns["version"] = found["updated"]
    columns["outline"] = [
        outline
        and {
            "pages": outline.pages,
            "headings": [{"start": start, "title": title} for start, title in outline.headings],
        }
        for outline in records.outlines(found)
    ]
    if "windows" in schema.names and not vectors.searchable(found.schema):
        blobs = vectors.blobs(found["windows"])
        ends = found["window_ends"].to_pylist()
        own = [records.windows(*pair).vectors for pair in zip(blobs, ends, strict=True)]
        columns["windows"] = vectors.column(own, schema.field("windows").type)
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def sizes(found: pa.Table, schema: pa.Schema) -> npt.NDArray[np.int64]:
    """About how many bytes each row of an export takes before compression.

    The sizes depend only on the content, so a resumed export cuts its files at the same rows.
    """
    dimensions = schema.field("vector").type.list_size
    total = np.full(found.num_rows, 4 * dimensions, np.int64)
    for name in ("id", "title", "text", "metadata"):
        total += _lengths(pc.binary_length(found[name]))
    if "windows" in schema.names:
        total += 2 * dimensions * _lengths(pc.list_value_length(found["windows"]))
    return total


def _lengths(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    return found


def _names(found: pa.Table) -> set[str]:
    return set(found.schema.names) - {"outline", "updated"}
