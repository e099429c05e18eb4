"""Scores of the windows of documents for a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
import pyarrow as pa

from docsplit.ranking import passages as ranking
from docsplit.ranking.words import lined
from docsplit.windowing.pooling import Vectors
from service.index.query.reading import Query
from service.index.rows import records, vectors
from service.index.rows.checksums import texts

Mode = Literal["cosine", "words", "hybrid"]

# weight of the cosine in a hybrid score; more of it finds fewer planted sentences
VECTOR_SHARE = np.float32(0.3)


@dataclass(frozen=True, slots=True)
class Asked:
    """A query by passages.

    Attributes:
        terms: words of the query.
        documents: number of documents of the answer.
        column: that the words of documents are read from; None if they do not count.
    """

    query: Query
    mode: Mode
    terms: ranking.Terms
    documents: int
    column: str | None

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
        ends: one past the last character of each window.
        scores: of the windows, float32 ``[windows]``; so are the others.
        cosines: to the query.
        shares: of the query's words; 0 if the words were not read.
    """

    digest: str
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
    ends, blobs = ends_of(rows), vectors.blobs(rows["windows"])
    held = _words(rows, ends, asked)
    whole = [
        place
        for place, blob in enumerate(blobs)
        # an unverified row may contradict itself
        if ends[place]
        and len(blob or b"") == len(ends[place]) * asked.query.vector.size * 2
        and (held is None or held[place].count("\n") == len(ends[place]))
    ]
    if not whole:
        return {}
    # many small arrays would take most of the time
    ends_of_each = [ends[place] for place in whole]
    flat = b"".join(blobs[place] or b"" for place in whole)
    windows = records.windows(flat, list(chain(*ends_of_each))).vectors
    cosines = ranking.cosines(windows, asked.query.vector)
    shares, scores = np.zeros_like(cosines), cosines
    if held is not None:
        shares = np.concatenate(ranking.shares_of([held[place] for place in whole], asked.terms))
        scores = asked.scores(cosines, shares)
    found, last = {}, 0
    columns = texts(rows["id"]), texts(rows["digest"])
    for place in whole:
        first, last = last, last + len(ends[place])
        name, digest = (column[place] for column in columns)
        parts = (values[first:last] for values in (scores, cosines, shares))
        found[name] = Scored(digest, ends[place], *parts)
    return found


def _words(rows: pa.Table, ends: Sequence[list[int]], asked: Asked) -> list[str] | None:
    """The words of each document, stored or made from its text; None if they do not count."""
    if asked.column is None:
        return None
    held = rows[asked.column].to_pylist()
    if asked.column == "text":
        return list(map(lined, held, ends))
    # a version that does not know the column may have written a document
    return [words or "\n" * len(own) for words, own in zip(held, ends, strict=True)]


def ends_of(rows: pa.Table) -> list[list[int]]:
    """One past the last character of each window of each document."""
    ends: list[list[int]] = rows["window_ends"].to_pylist()
    return ends
