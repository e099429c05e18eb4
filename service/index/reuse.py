"""Vectors that an index holds already: a document whose text is unchanged is not embedded again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lancedb.expr import col, lit

from service.documents.embedder import Document
from service.documents.pooling import Vectors, normalise
from service.index import records
from service.index.documents import Index, matrix
from service.index.record import Record

# texts and windows of so many documents are read at once
_CHUNK = 128


@dataclass(frozen=True, slots=True)
class Encoding:
    """What an index keeps of a text.

    Attributes:
        vector: float32 ``[dimensions]``, unit length.
        windows: ``[windows, dimensions]``, unit rows.
        ends: one past the last character of each window.
    """

    vector: Vectors
    windows: Vectors
    ends: list[int]


def encoded(document: Document) -> Encoding:
    """The encoding of a document that was just embedded."""
    ends = [window.end for window in document.windows]
    return Encoding(normalise(document.vector()), document.matrix(), ends)


class Content(Protocol):
    """What a caller gives of a document."""

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


def record(given: Content, encoding: Encoding) -> Record:
    """The document as an index keeps it."""
    return Record(
        id=given.id,
        text=given.text,
        title=given.title,
        metadata=given.metadata,
        links=given.links,
        vector=encoding.vector,
        windows=encoding.windows,
        ends=encoding.ends,
    )


async def kept(index: Index, texts: Mapping[str, str]) -> dict[str, Encoding]:
    """Encodings of those documents that the index holds with the same text.

    Args:
        texts: by id.
    """
    found: dict[str, Encoding] = {}
    for ids in _chunks(list(texts)):
        columns = ["id", "text", "vector", "windows", "window_ends"]
        rows = await index.select(col("id").isin([lit(i) for i in ids]), columns, len(ids))
        if not rows.num_rows:
            continue
        vectors = matrix(rows)
        for vector, row in zip(vectors, rows.drop_columns(["vector"]).to_pylist(), strict=True):
            if row["text"] == texts[row["id"]]:
                windows = records.windows(row["windows"], row["window_ends"])
                found[row["id"]] = Encoding(vector, windows.vectors, windows.ends)
    return found


def _chunks(ids: Sequence[str]) -> Sequence[Sequence[str]]:
    return [ids[first : first + _CHUNK] for first in range(0, len(ids), _CHUNK)]
