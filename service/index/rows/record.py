"""A document as an index stores it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from docsplit.windowing.pooling import Vectors, normalise
from service.embedding.embedder import Document
from service.index.rows.outline import NONE, Outline


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
