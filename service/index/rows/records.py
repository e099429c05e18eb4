"""A document as an index stores it, and its Arrow row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from docsplit.ranking.words import lined
from docsplit.windowing.pooling import Vectors, normalise
from service.embedding.embedder import Document
from service.index.rows import derived
from service.index.rows.checksums import restate, seal, texts
from service.index.rows.derived import NONE, Outline
from service.index.rows.fields import FieldType, column, column_name
from service.index.rows.schema import OPTIONAL
from service.index.rows.vectors import windows_column


@dataclass(frozen=True, slots=True)
class Encoding:
    """The stored form of a text.

    Attributes:
        vector: float32 ``[dimensions]``, unit length.
        windows: ``[windows, dimensions]``, unit rows.
        ends: one past the last character of each window.
    """

    vector: Vectors
    windows: Vectors
    ends: list[int]


@dataclass(frozen=True, slots=True)
class Record:
    """A document as an index stores it.

    Attributes:
        outline: pages and headings, if the document comes from a file that has them.
    """

    id: str
    text: str
    title: str | None
    metadata: dict[str, Any]
    links: list[str]
    encoding: Encoding
    outline: Outline | None = None


def encoded(document: Document) -> Encoding:
    """The encoding of a document from the embedder."""
    ends = [window.end for window in document.windows]
    return Encoding(normalise(document.vector()), document.matrix(), ends)


class Content(Protocol):
    """A document as the client gives it."""

    @property
    def id(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def title(self) -> str | None: ...
    @property
    def metadata(self) -> dict[str, Any]: ...
    @property
    def links(self) -> list[str]: ...


def record(given: Content, encoding: Encoding, outline: Outline | None = None) -> Record:
    """The document as an index stores it."""
    return Record(
        id=given.id,
        text=given.text,
        title=given.title,
        metadata=given.metadata,
        links=given.links,
        encoding=encoding,
        outline=outline,
    )


@dataclass(slots=True)
class Windows:
    """Windows of a document: vectors, character ranges, and the outline of a stored one."""

    vectors: Vectors
    ends: list[int]
    outline: Outline = NONE

    def span(self, index: int) -> dict[str, int]:
        """The first character of a window, and one past its last."""
        return {"start": self.ends[index - 1] if index else 0, "end": self.ends[index]}

    def place(self, index: int) -> dict[str, Any]:
        """The span of a window, and the page and the heading where it begins."""
        span = self.span(index)
        page, heading = self.outline.page(span["start"]), self.outline.heading(span["start"])
        return span | {"page": page, "heading": heading}


def digest(
    text: str, title: str | None, metadata: dict[str, Any], links: Sequence[str], revision: str
) -> str:
    """32 hex digits that change with a document's content or with the model."""
    content = json.dumps([text, title, metadata, list(links), revision], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Stored:
    """A document as the client gave it, with its vector.

    Attributes:
        metadata: a JSON object.
        updated: when it was written, in microseconds since the epoch.
    """

    id: str
    text: str
    title: str | None
    metadata: str
    links: list[str]
    updated: int
    vector: Vectors


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
        "windows": windows_column(
            [r.encoding.windows for r in records], schema.field("windows").type
        ),
        "window_ends": [r.encoding.ends for r in records],
        "updated": updated,
        "deleted": [False] * len(records),
    }
    pairs = list(zip(records, digests, strict=True))
    if derived.TERMS in schema.names:
        columns[derived.TERMS] = [derived.sealed_terms(r.text, held) for r, held in pairs]
    if derived.WORDS in schema.names:
        columns[derived.WORDS] = [lined(r.text, r.encoding.ends) for r in records]
    if derived.OUTLINE in schema.names:
        columns[derived.OUTLINE] = [derived.sealed_outline(r.outline, held) for r, held in pairs]
    for name, kind in fields.items():
        columns[column_name(name)] = [column(kind, r.metadata.get(name)) for r in records]
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
    if derived.OUTLINE in rows.schema.names:
        stored = rows[derived.OUTLINE].to_pylist()
    # one at a time: an opened one may have some MB
    return map(derived.opened_outline, stored, texts(rows["digest"]))


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
    """Windows from one of ``window_blobs``; the vectors are float32 ``[windows, dimensions]``."""
    matrix = np.frombuffer(blob or b"", dtype="<f2").reshape(len(ends), -1)
    return Windows(matrix.astype(np.float32), ends)
