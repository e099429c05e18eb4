"""Search in one index: by vector, by words, by both, and by who cites whom."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from lancedb.expr import Expr, col, lit

from service.documents.pooling import Vectors
from service.heads.citation import probabilities
from service.heads.network import Network
from service.index.documents import LIVE, Index, matrix
from service.index.words import frequent

if TYPE_CHECKING:
    from lancedb.query import AsyncStandardQuery

Direction = Literal["cites", "cited_by"]

# Reciprocal rank fusion's constant (Cormack, Clarke and Büttcher 2009).
RRF = 60
# how deep each ranking is read for fusion, at least
CANDIDATES = 100
# an approximate search compares so many times the wanted rows again with the full vectors
REFINE = 10
_COLUMNS = ["id", "title", "metadata", "vector"]


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    Attributes:
        vector: float32 ``[dimensions]``, unit length.
        text: whose words the full-text search takes.
        id: of the document itself where it is in the index; it is left out of the answer.
    """

    vector: Vectors
    text: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A document found; ``score`` is what the hits are ranked by."""

    id: str
    title: str | None
    metadata: str
    vector: Vectors
    cosine: float
    score: float
    direction: Direction | None = None


async def cosine(index: Index, query: Query, limit: int, where: Expr | None) -> list[Hit]:
    """The documents with the highest cosine to the query."""
    found = await _by_vector(index, query, limit, where)
    hits = _hits(found, query)
    return sorted(hits.values(), key=lambda hit: -hit.score)


async def words(index: Index, query: Query, limit: int, where: Expr | None) -> list[Hit]:
    """The documents whose words weigh most for the query's (BM25)."""
    found = await _by_words(index, query, limit, where)
    scores = dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))
    hits = _hits(found, query)
    return [replace(hits[name], score=score) for name, score in scores.items()]


async def hybrid(index: Index, query: Query, limit: int, where: Expr | None) -> list[Hit]:
    """Cosine and full-text search (BM25), fused by reciprocal rank."""
    depth = max(CANDIDATES, limit)
    near, worded = await asyncio.gather(
        _by_vector(index, query, depth, where), _by_words(index, query, depth, where)
    )
    by_cosine = _hits(near, query)
    hits = _hits(worded, query) | by_cosine
    ranked = sorted(by_cosine, key=lambda name: -by_cosine[name].cosine)
    scores = fuse(ranked, worded["id"].to_pylist())
    found = [replace(hits[name], score=score) for name, score in scores.items()]
    return found[:limit]


def fuse(*rankings: Sequence[str]) -> dict[str, float]:
    """Reciprocal rank fusion: the sum of 1 / (60 + rank) over the rankings, highest first."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, name in enumerate(ranking, start=1):
            scores[name] = scores.get(name, 0.0) + 1 / (RRF + rank)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


async def citation(
    index: Index,
    query: Query,
    limit: int,
    where: Expr | None,
    head: Network,
    direction: Direction | None = None,
) -> list[Hit]:
    """The hybrid candidates by the probability that one of the two documents cites the other.

    With ``direction``, that the query cites, or is cited by, the document found.
    """
    hits = await hybrid(index, query, max(CANDIDATES, limit), where)
    if not hits:
        return []
    found = np.stack([hit.vector for hit in hits])
    asked = np.broadcast_to(query.vector, found.shape)
    cites, cited = np.zeros(len(hits)), np.zeros(len(hits))
    if direction != "cited_by":
        cites = probabilities(head, asked, found)
    if direction != "cites":
        cited = probabilities(head, found, asked)
    ranked = [
        replace(
            hit,
            score=float(max(one, two)),
            direction=direction or ("cites" if one >= two else "cited_by"),
        )
        for hit, one, two in zip(hits, cites, cited, strict=True)
    ]
    return sorted(ranked, key=lambda hit: -hit.score)[:limit]


async def _by_vector(index: Index, query: Query, limit: int, where: Expr | None) -> pa.Table:
    search = index.table.query().nearest_to(query.vector).distance_type("cosine")
    search = search.refine_factor(REFINE).ef(max(200, 2 * limit))
    return await _run(search, query, limit, where, "_distance")


async def _by_words(index: Index, query: Query, limit: int, where: Expr | None) -> pa.Table:
    words = frequent(query.text)
    search = index.table.query().nearest_to_text(words, columns=["text"])
    return await _run(search, query, limit, where, "_score")


async def _run(
    search: AsyncStandardQuery, query: Query, limit: int, where: Expr | None, rank: str
) -> pa.Table:
    where = LIVE if where is None else LIVE & where
    if query.id is not None:
        where = where & col("id").ne(lit(query.id))
    return await search.where(where).select([*_COLUMNS, rank]).limit(limit).to_arrow()


def _hits(found: pa.Table, query: Query) -> dict[str, Hit]:
    if not found.num_rows:
        return {}
    vectors = matrix(found)
    cosines = np.clip(vectors @ query.vector, -1, 1).tolist()
    rows = found.select(_COLUMNS[:-1]).to_pylist()
    return {
        row["id"]: Hit(**row, vector=vector, cosine=value, score=value)
        for row, vector, value in zip(rows, vectors, cosines, strict=True)
    }
