"""Search in one index: by vector, by words, and by both."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from lancedb.expr import Expr, col, lit

from ranking.fusion import fuse, shares
from service.index.documents import Index, matrix
from service.index.query import listing
from service.index.rows.checksums import Part, sound, texts
from windowing.pooling import Vectors

if TYPE_CHECKING:
    from lancedb.query import AsyncStandardQuery

Direction = Literal["cites", "cited_by"]

# how deep each ranking is read for fusion, at least
CANDIDATES = 100
# an approximate search finds so many times the wanted rows, which are ranked by their full vectors:
# reading them is most of its cost, and more of them no longer raise recall;
# LanceDB's refine_factor does the same in a stage of its own, for twice the time
OVERSAMPLE = 1.5
# what a ranking needs: titles and metadata are read of the hits that are answered alone
_COLUMNS = ["id", "vector", "digest"]


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
    """A document found.

    Attributes:
        row: where the document lay in the table as it was found.
        score: what the hits are ranked by.
        words: BM25, from 0 for the last that the search by words found to 1 for the first.
        title: read of the hits that are answered alone.
        metadata: a JSON object; read as ``title``.
        digest: with the checksum that tells whether the vector is what was written.
    """

    id: str
    row: int
    vector: Vectors
    cosine: float
    score: float
    words: float = 0.0
    title: str | None = None
    metadata: str = "{}"
    direction: Direction | None = None
    digest: str = ""


async def cosine(index: Index, query: Query, limit: int, where: Expr | None) -> list[Hit]:
    """The documents with the highest cosine to the query."""
    found = await _by_vector(index, query, limit, where)
    hits = _hits(found, query)
    return await first(index, sorted(hits.values(), key=lambda hit: -hit.score), limit)


async def words(index: Index, query: Query, limit: int, where: Expr | None) -> list[Hit]:
    """The documents whose words weigh most for the query's (BM25)."""
    found = await _by_words(index, query, limit, where)
    scores = dict(zip(texts(found["id"]), found["_score"].to_pylist(), strict=True))
    hits = _hits(found, query)
    ranked = [replace(hits[name], score=score) for name, score in scores.items()]
    return await first(index, ranked, limit)


async def hybrid(index: Index, query: Query, limit: int, where: Expr | None) -> list[Hit]:
    """Cosine and full-text search (BM25), fused by reciprocal rank."""
    return await first(index, await candidates(index, query, limit, where), limit)


async def first(index: Index, ranked: Iterable[Hit], limit: int) -> list[Hit]:
    """The first hits with titles and metadata; what is damaged or gone is passed over."""
    found: list[Hit] = []
    rest = (hit for hit in ranked if _sound(index, hit))
    while chunk := list(islice(rest, limit - len(found))):
        heads = await listing.heads(index, [hit.id for hit in chunk], [hit.row for hit in chunk])
        found += [
            replace(hit, title=heads[hit.id].title, metadata=heads[hit.id].metadata)
            for hit in chunk
            if hit.id in heads
        ]
    return found


def _sound(index: Index, hit: Hit) -> bool:
    """Whether the vector is what was written, and so the cosine and the rank are right."""
    payload = {Part.VECTOR: (hit.vector.astype("<f4").tobytes(),)}
    if sound(hit.digest, hit.id, payload):
        return True
    index.note_damage([Part.VECTOR], 1)
    return False


async def candidates(index: Index, query: Query, limit: int, where: Expr | None) -> list[Hit]:
    """All that ``hybrid`` ranks, best first, without titles and metadata."""
    depth = max(CANDIDATES, limit)
    near, worded = await asyncio.gather(
        _by_vector(index, query, depth, where), _by_words(index, query, depth, where)
    )
    by_cosine = _hits(near, query)
    hits = _hits(worded, query) | by_cosine
    ranked = sorted(by_cosine, key=lambda name: -by_cosine[name].cosine)[:depth]
    weights = shares(texts(worded["id"]), worded["_score"].to_pylist())
    scores = fuse(ranked, list(weights))
    return [
        replace(hits[name], score=score, words=weights.get(name, 0.0))
        for name, score in scores.items()
    ]


async def _by_vector(index: Index, query: Query, limit: int, where: Expr | None) -> pa.Table:
    wide = math.ceil(OVERSAMPLE * limit)
    search = index.table.query().nearest_to(query.vector).distance_type("cosine").ef(max(100, wide))
    return await _run(search, query, wide, where, "_distance")


async def _by_words(index: Index, query: Query, limit: int, where: Expr | None) -> pa.Table:
    frequencies = await index.vocabulary.frequencies(index)
    words = frequencies.top_terms(query.text)
    search = index.table.query().nearest_to_text(words, columns=["text"])
    return await _run(search, query, limit, where, "_score")


async def _run(
    search: AsyncStandardQuery, query: Query, limit: int, where: Expr | None, rank: str
) -> pa.Table:
    if query.id is not None:
        others = col("id").ne(lit(query.id))
        where = others if where is None else where & others
    if where is not None:
        search = search.where(where)
    return await search.select([*_COLUMNS, rank]).with_row_id().limit(limit).to_arrow()


def _hits(found: pa.Table, query: Query) -> dict[str, Hit]:
    if not found.num_rows:
        return {}
    vectors = matrix(found)
    # a damaged vector may hold numbers of any size, or none
    with np.errstate(all="ignore"):
        cosines = np.nan_to_num(np.clip(vectors @ query.vector, -1, 1)).tolist()
    told = zip(texts(found["id"]), texts(found["digest"]), found["_rowid"].to_pylist(), strict=True)
    return {
        name: Hit(name, row, vector, cosine=value, score=value, digest=digest)
        for (name, digest, row), vector, value in zip(told, vectors, cosines, strict=True)
    }
