"""Scores of the windows of documents for a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from ranking import passages as ranking
from service.index.query.reading import Query
from service.index.rows import records, vectors
from service.index.rows.checksums import texts
from windowing.pooling import Vectors

Mode = Literal["cosine", "words", "hybrid"]

# weight of the cosine in a hybrid score; more of it finds fewer planted sentences
VECTOR_SHARE = np.float32(0.3)


@dataclass(frozen=True, slots=True)
class Asked:
    """A query by passages.

    Attributes:
        terms: words of the query.
        documents: number of documents of the answer.
    """

    query: Query
    mode: Mode
    terms: ranking.Terms
    documents: int

    def scores(self, cosines: Vectors, shares: Vectors) -> Vectors:
        """The scores of windows with some cosines and shares of the query's words."""
        # a query without words leaves the order to the vectors
        if self.mode == "cosine" or (self.mode == "hybrid" and not self.terms.weights):
            return cosines
        if self.mode == "words":
            return shares
        scores: Vectors = VECTOR_SHARE * cosines + (1 - VECTOR_SHARE) * shares
        return scores


@dataclass(frozen=True, slots=True)
class Scored:
    """A document whose windows have scores.

    Attributes:
        digest: value of the column ``digest`` beside the windows.
        text: of the document; None if it was not read.
        ends: one past the last character of each window.
        scores: of the windows, float32 ``[windows]``; so are the others.
        cosines: to the query.
        shares: of the query's words; 0 without the text.
    """

    digest: str
    text: str | None
    ends: list[int]
    scores: Vectors
    cosines: Vectors
    shares: Vectors

    @property
    def best(self) -> float:
        """The score of the best window."""
        return float(self.scores.max())


def scored(rows: pa.Table, asked: Asked) -> dict[str, Scored]:
    """The documents of some rows by id, without those whose windows contradict themselves."""
    found = {}
    held = texts(rows["text"]) if "text" in rows.schema.names else [None] * rows.num_rows
    columns = (texts(rows["id"]), texts(rows["digest"]), held)
    ends, blobs = ends_of(rows), vectors.blobs(rows["windows"])
    read = [place for place, text in enumerate(held) if text is not None]
    made = ranking.shares_of(
        [held[place] or "" for place in read], [ends[place] for place in read], asked.terms
    )
    shares = dict(zip(read, made, strict=True))
    for place, (name, digest, text) in enumerate(zip(*columns, strict=True)):
        windows = windows_of(blobs[place], ends[place], asked)
        if windows is not None:
            cosines = ranking.cosines(windows, asked.query.vector)
            own = shares.get(place, np.zeros_like(cosines))
            scores = cosines if text is None else asked.scores(cosines, own)
            found[name] = Scored(digest, text, ends[place], scores, cosines, own)
    return found


def windows_of(blob: bytes | None, ends: Sequence[int], asked: Asked) -> Vectors | None:
    """Windows ``[windows, dimensions]``; None if an unverified row contradicts itself."""
    if not ends or len(blob or b"") != len(ends) * asked.query.vector.size * 2:
        return None
    return records.windows(blob, list(ends)).vectors


def ends_of(rows: pa.Table) -> list[list[int]]:
    """One past the last character of each window of each document."""
    ends: list[list[int]] = rows["window_ends"].to_pylist()
    return ends
