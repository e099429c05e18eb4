"""Searches one index: by vector, by words, and by both."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from docsplit.ranking import fusion
from docsplit.ranking.fusion import DEEP
from docsplit.ranking.terms import Bag, bag
from docsplit.ranking.words import words as words_of
from service import executors
from service.index.documents import Index
from service.index.query import listing
from service.index.query.filters import Where, filtered
from service.index.query.reading import Hit, Query, Ranks, matching, ordered, ranked, read, target
from service.index.query.words import similarities
from service.index.rows.checksums import Part, sound
from service.index.rows.records import Windows
from service.index.rows.vectors import vector_matrix

if TYPE_CHECKING:
    import pyarrow as pa
    from lancedb.query import AsyncVectorQuery

# least depth of each ranking for fusion
CANDIDATES = 100
# a query with fewer distinct words is ranked by BM25;
# docs/explanation/experiments/search.md, "Words of whole documents"
SHORT = 100
# an approximate search finds this many times the wanted rows and ranks them by their full vectors:
# reading them is most of its cost, and more of them do not raise recall;
# LanceDB's refine_factor does the same in a separate stage, in twice the time
OVERSAMPLE = 1.5
# least number of candidates that a profile ranks
ADAPTED_CANDIDATES = 100


async def stored(index: Index, document_id: str, *, text: bool = True) -> Query:
    """The query for a stored document.

    Args:
        text: read its text, which searches by vector do not use.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the stored document does not match its checksums.
    """
    parts = (Part.TEXT, Part.VECTOR) if text else (Part.VECTOR,)
    found = await index.one(document_id, *parts)
    return Query(vector_matrix(found)[0], found["text"][0].as_py() if text else "", document_id)


async def cosine(index: Index, query: Query, limit: int, where: Where | None) -> list[Hit]:
    """The documents with the highest cosine, or adapted cosine, to the query."""

    async def search() -> list[Ranks]:
        return [await _by_vector(index, query, limit, where)]

    found = await read(index, query, search, heads=True)
    order: list[int] = np.argsort(-found.dense, kind="stable").tolist()
    if Part.HEAD not in found.parts:
        return await first(index, map(found.hit, order), limit, query)
    # to verify only the hits of the answer costs a fifth of verifying all candidates
    best: list[int] = []
    rest = iter(order)
    while chunk := list(islice(rest, limit - len(best))):
        best += await found.sound(index, chunk)
    hits = [found.hit(place) for place in best[query.offset :]]
    query.reserve(sum(len(hit.title or "") + len(hit.metadata or "") for hit in hits))
    return hits


async def words(index: Index, query: Query, limit: int, where: Where | None) -> list[Hit]:
    """The documents whose words resemble those of the query most.

    A short query is ranked by BM25. A longer one is ranked by the cosine of the words and pairs of
    words of whole documents, among the ``DEEP`` best by BM25.
    """
    brief = await executors.STORE.run(short, query.text)
    depth = limit if brief else max(DEEP, limit)

    async def search() -> list[Ranks]:
        return [await _by_words(index, query, depth, where, brief=brief, least=limit)]

    found, asked = await asyncio.gather(
        read(index, query, search, words=not brief), _asked(query, brief=brief)
    )
    if brief:
        scores = found.ranks(0)
    else:
        scores = await similarities(index, asked, found.documents)
    order = np.argsort(-scores, kind="stable").tolist()
    ranked = (found.hit(place, float(scores[place])) for place in order)
    return await first(index, ranked, limit, query)


async def hybrid(index: Index, query: Query, limit: int, where: Where | None) -> list[Hit]:
    """The candidates of both searches, by ``docsplit.ranking.fusion.hybrid``."""
    brief = await executors.STORE.run(short, query.text)
    ranked = await candidates(index, query, limit, where, brief=brief)
    return await first(index, ranked, limit, query)


async def candidates(
    index: Index, query: Query, limit: int, where: Where | None, *, brief: bool = False
) -> Iterator[Hit]:
    """The candidates of ``hybrid``, best first, without titles and metadata.

    Args:
        limit: least depth of each search.
        brief: compare words by BM25, as for a short query.
    """
    depth = max(CANDIDATES, limit)

    async def search() -> list[Ranks]:
        deep = depth if brief else max(DEEP, limit)
        worded = _by_words(index, query, deep, where, brief=brief, least=limit)
        near = _by_vector(index, query, limit, where, least=CANDIDATES)
        return list(await asyncio.gather(worded, near))

    found, asked = await asyncio.gather(
        read(index, query, search, words=not brief), _asked(query, brief=brief)
    )
    worded, near = found.ranks(0), found.ranks(1)
    # of the rows near the query, the nearest by their full vectors
    nearest = np.argsort(-np.where(np.isnan(near), -np.inf, found.dense), kind="stable")[:depth]
    kept = ~np.isnan(worded)
    kept[nearest] |= ~np.isnan(near[nearest])
    if brief:
        lowest = np.nanmin(worded) if np.count_nonzero(~np.isnan(worded)) >= depth else 0.0
        lexical = np.nan_to_num(worded, nan=lowest)
    else:
        lexical = await similarities(index, asked, found.documents)
    places = np.flatnonzero(kept)
    vectors, lexical = found.dense[places].astype(np.float64), lexical[places]
    scores = fusion.hybrid(vectors, lexical, brief=brief)
    order = np.argsort(-scores, kind="stable").tolist()
    return (found.hit(int(places[at]), float(scores[at]), float(lexical[at])) for at in order)


async def _asked(query: Query, *, brief: bool) -> Bag:
    """The words that a long query is compared by."""
    return b"" if brief else await executors.STORE.run(bag, query.text)


def short(text: str) -> bool:
    """Whether a query has few distinct words, as a question or a sentence has."""
    return len(set(islice(words_of(text), 4 * SHORT))) < SHORT


async def first(index: Index, ranked: Iterator[Hit], limit: int, query: Query) -> list[Hit]:
    """The hits from the offset to ``limit`` with titles and metadata.

    It skips damaged and deleted documents.
    """
    found: list[Hit] = []
    rest = (hit for hit in ranked if _sound(index, hit))
    next(islice(rest, query.offset, query.offset), None)
    most = limit - query.offset
    largest, wanted = 1, listing.FIRST_READ
    while chunk := list(islice(rest, min(wanted, most - len(found)))):
        rows = [hit.row for hit in chunk]
        heads = await listing.heads(index, [hit.id for hit in chunk], rows)
        lengths = [head.size for head in heads.values()]
        query.reserve(sum(lengths))
        largest = max([largest, *lengths])
        wanted = listing.next_read(listing.PAGE_BYTES, largest)
        found += [
            replace(hit, title=heads[hit.id].title, metadata=heads[hit.id].metadata)
            for hit in chunk
            if hit.id in heads
        ]
    return found


def _sound(index: Index, hit: Hit) -> bool:
    """Whether the vector is intact, so that the cosine and the rank are right."""
    payload = {Part.VECTOR: (hit.vector.astype("<f4").tobytes(),)}
    if sound(hit.digest, hit.id, payload):
        return True
    index.note_damage([Part.VECTOR], 1)
    return False


async def _by_vector(
    index: Index, query: Query, limit: int, where: Where | None, least: int = 0
) -> Ranks:
    wide, vector = max(math.ceil(OVERSAMPLE * limit), least), target(query)
    if query.profile is not None:
        wide = max(wide, ADAPTED_CANDIDATES)

    def nearest(most: int) -> AsyncVectorQuery:
        search = index.table.query().nearest_to(vector).column("vector")
        # an index of a former version refuses to consider fewer neighbours than it returns
        search = search.distance_type("cosine").ef(max(100, most))
        return search.select(["_distance"]).with_row_id().limit(most)

    async def search(most: int) -> pa.Table:
        if where is None:
            return await nearest(most).to_arrow()
        return await filtered(
            index, lambda parts: nearest(most).where(where.form).nprobes(parts).to_arrow(), where
        )

    found = await ordered(search, _most(query, wide), "_distance", "ascending")
    return ranked(found, "_distance")


async def _by_words(
    index: Index, query: Query, limit: int, where: Where | None, *, brief: bool, least: int
) -> Ranks:
    frequencies = await index.vocabulary.frequencies(index)
    chosen = frequencies.top_terms if brief else frequencies.deep_terms
    words = await executors.STORE.run(chosen, query.text)
    enough = None if brief else _most(query, least)
    return await matching(index, words, _most(query, limit), where, least=enough)


def _most(query: Query, limit: int) -> int:
    """Rows to read, because the query leaves some documents out, perhaps its own too."""
    return limit + len(query.exclude) + 1


@dataclass(frozen=True, slots=True)
class Pair:
    """Two windows, by number, and their cosine."""

    query: int
    document: int
    cosine: float


def closest_pairs(query: Windows, document: Windows, most: int) -> list[Pair]:
    """The closest pairs, highest first; each window occurs in at most one pair."""
    cosines = query.vectors @ document.vectors.T
    pairs = []
    for _ in range(min(most, *cosines.shape)):
        row, column = np.unravel_index(int(cosines.argmax()), cosines.shape)
        pairs.append(Pair(int(row), int(column), float(min(cosines[row, column], 1.0))))
        cosines[row, :] = -np.inf
        cosines[:, column] = -np.inf
    return pairs
