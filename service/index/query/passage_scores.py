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

    def scores(
        self, windows: Vectors, ends: Sequence[int], text: str | None
    ) -> tuple[Vectors, Vectors, Vectors]:
        """Scores, cosines and shares of words of the windows of a document."""
        cosines = ranking.cosines(windows, self.query.vector)
        if text is None:
            return cosines, cosines, np.zeros_like(cosines)
        shares = ranking.shares(text, ends, self.terms)
        # a query without words leaves the order to the vectors
        if self.mode == "cosine" or (self.mode == "hybrid" and not self.terms.weights):
            return cosines, cosines, shares
        scores = shares
        if self.mode == "hybrid":
            scores = VECTOR_SHARE * cosines + (1 - VECTOR_SHARE) * shares
        return scores, cosines, shares


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
    for name, digest, text, blob, ends in zip(
        texts(rows["id"]),
        texts(rows["digest"]),
        held,
        vectors.blobs(rows["windows"]),
        ends_of(rows),
        strict=True,
    ):
        windows = windows_of(blob, ends, asked)
        if windows is not None:
            found[name] = Scored(digest, text, ends, *asked.scores(windows, ends, text))
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
