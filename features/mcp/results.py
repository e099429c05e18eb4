"""The structured results of the tools, made of the answers of the routes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from service.server.bodies.document_bodies import DocumentOut
from service.server.bodies.similar_bodies import HitOut, Place
from service.server.routes.classify import Explained
from service.server.routes.stored.indexes import IndexOut
from service.server.routes.stored.passages import PassagesOut


class Indexes(BaseModel):
    """Some of the indexes that the key may use, in the order of their names."""

    indexes: list[str]
    described: list[IndexOut] = Field(description="those of them that it may read")
    next: str | None = Field(description="give it as after to see more; null: there are no more")


class Hits(BaseModel):
    """Documents, the best first."""

    hits: list[HitOut]


class Passages(BaseModel):
    """Documents with their best passages, the best first."""

    documents: list[PassagesOut]


class DocumentPart(DocumentOut):
    """A document with a part of its text and of its links."""

    link_count: int = Field(description="of the whole document")
    characters: int = Field(description="length of the whole text")
    start: int
    end: int


class WindowOut(Place):
    """A window."""

    text: str


class PairOut(BaseModel):
    """Two windows that resemble each other."""

    cosine: float
    query: WindowOut
    document: WindowOut


class Pairs(BaseModel):
    """What two documents have in common."""

    cosine: float = Field(description="of the whole documents")
    pairs: list[PairOut]


Labels = Explained


class Written(BaseModel):
    """The number of documents."""

    documents: int
    done: Literal["stored", "deleted"]
