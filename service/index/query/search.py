"""Searches one index: by vector, by words, and by both."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from threadpoolctl import ThreadpoolController

from ranking import tokens
from ranking.adaptation import Profile
from ranking.fusion import standard
from service import executors
from service.index.documents import Index, matrix
from service.index.query import listing
from service.index.query.bags import Found, similarities
from service.index.query.filters import Where
from service.index.rows import checksums
from service.index.rows.checksums import Part, sound, texts
from service.index.rows.fields import HEAD_BYTES
from windowing.pooling import Vectors

if TYPE_CHECKING:
    from lancedb.query import AsyncStandardQuery

Direction = Literal["cites", "cited_by"]

# least depth of each ranking for fusion
CANDIDATES = 100
# least depth of the search for words that are then compared exactly
DEEP = 400
# the share of the vectors in the score of the mode hybrid
DENSE, DENSE_SHORT = 0.3, 0.6
# a query with fewer distinct words is ranked by BM25; docs/explanation/experiments.md, "Words of
# whole documents"
SHORT = 100
# an approximate search finds this many times the wanted rows and ranks them by their full vectors:
# reading them is most of its cost, and more of them do not raise recall;
# LanceDB's refine_factor does the same in a separate stage, in twice the time
OVERSAMPLE = 1.5
# least number of candidates that a profile ranks
ADAPTED_CANDIDATES = 100
# with more threads so small a product waits for other work on the cores
_BLAS = ThreadpoolController()


@dataclass(frozen=True, slots=True)
class Query:
    """The input of a search.

    Attributes:
        vector: float32 ``[dimensions]``, unit length.
        text: source of the words for full-text search.
        id: of the document itself if it is in the index; the answer leaves it out.
        exclude: ids of other documents that the answer leaves out.
        offset: number of first hits that the answer leaves out; ``limit`` of a search counts them.
        profile: ranks by the cosine of adapted vectors; without one, by the cosine.
    """

    vector: Vectors
    text: str
    id: str | None = None
    exclude: frozenset[str] = frozenset()
    offset: int = 0
    profile: Profile | None = None

    def leaves_out(self, name: str) -> bool:
        """Whether the answer must not contain a document."""
        return name == self.id or name in self.exclude


@dataclass(frozen=True, slots=True)
class Hit:
    """A found document.

    Attributes:
        row: position of the document in the table at the time of the search.
        score: the value that ranks the hits.
        words: of a hybrid search: the cosine of the words, or BM25 for a short query.
        title: read with the vectors if all candidates' titles and metadata are small enough,
            otherwise only for the hits of the answer.
        metadata: a JSON object; None if title and metadata are not read yet, which holds for all
            candidates of a search or for none.
        digest: with the checksum that verifies the vector.
    """

    id: str
    row: int
    vector: Vectors
    cosine: float
    score: float
    words: float = 0.0
    title: str | None = None
    metadata: str | None = None
    direction: Direction | None = None
    digest: str = ""


async def stored(index: Index, document_id: str) -> Query:
    """The query for a stored document.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the stored document does not match its checksums.
    """
    found = await index.one(document_id, Part.TEXT, Part.VECTOR)
    return Query(matrix(found)[0], found["text"][0].as_py(), document_id)


async def cosine(index: Index, query: Query, limit: int, where: Where | None) -> list[Hit]:
    """The documents with the highest cosine, or adapted cosine, to the query."""
    near = await _by_vector(index, query, limit, where)
    return await first(index, map(near.hit, near.by_cosine), limit, query.offset)


async def words(index: Index, query: Query, limit: int, where: Where | None) -> list[Hit]:
    """The documents whose words resemble those of the query most.

    A short query is ranked by BM25. A longer one is ranked by the cosine of the words and pairs of
    words of whole documents, among the ``DEEP`` best by BM25.
    """
    if await executors.STORE.run(short, query.text):
        worded = await _by_words(index, query, limit, where)
        by_rank = map(worded.hit, worded.ids, worded.ranks)
        return await first(index, by_rank, limit, query.offset)
    worded = await _by_words(index, query, max(DEEP, limit), where)
    scores = await similarities(index, query.text, {n: worded.found(n) for n in worded.ids})
    order = np.argsort(-scores, kind="stable").tolist()
    ranked = (worded.hit(worded.ids[place], float(scores[place])) for place in order)
    return await first(index, ranked, limit, query.offset)


async def hybrid(index: Index, query: Query, limit: int, where: Where | None) -> list[Hit]:
    """The candidates of both searches, by a weighted mean of two standard scores.

    The standard score of the cosine has the weight ``DENSE``, or ``DENSE_SHORT`` for a short query.
    The other standard score is that of BM25 for a short query, otherwise of the root of the words'
    cosine, whose long tail the root shortens.
    """
    brief = await executors.STORE.run(short, query.text)
    ranked = await candidates(index, query, limit, where, brief=brief)
    return await first(index, ranked, limit, query.offset)


async def candidates(
    index: Index, query: Query, limit: int, where: Where | None, *, brief: bool = False
) -> Iterator[Hit]:
    """The candidates of ``hybrid``, best first, without titles and metadata.

    Args:
        index: contains the documents.
        query: of the search.
        limit: least depth of each search.
        where: filter.
        brief: compare words by BM25, as for a short query.
    """
    depth = max(CANDIDATES, limit)
    near, worded = await asyncio.gather(
        _by_vector(index, query, depth, where),
        _by_words(index, query, depth if brief else max(DEEP, limit), where),
    )
    rows = dict.fromkeys(worded.ids, worded)
    rows |= dict.fromkeys(near.by_cosine[:depth], near)
    names = list(rows)
    if brief:
        lowest = worded.ranks[-1] if len(worded.ids) >= depth else 0.0
        ranks = dict(zip(worded.ids, worded.ranks, strict=True))
        lexical = np.array([ranks.get(name, lowest) for name in names])
    else:
        lexical = await similarities(index, query.text, {n: rows[n].found(n) for n in names})
    vectors = np.array([rows[name].dense(name) for name in names])
    share = DENSE_SHORT if brief else DENSE
    spread = lexical if brief else np.sqrt(lexical)
    scores = share * standard(vectors) + (1 - share) * standard(spread)
    order = np.argsort(-scores, kind="stable").tolist()
    return (
        rows[names[place]].hit(names[place], float(scores[place]), float(lexical[place]))
        for place in order
    )


def short(text: str) -> bool:
    """Whether a query has few distinct words, as a question or a sentence has."""
    return len(set(islice(tokens.words(text), 4 * SHORT))) < SHORT


async def first(index: Index, ranked: Iterator[Hit], limit: int, offset: int) -> list[Hit]:
    """The hits from ``offset`` to ``limit`` with titles and metadata.

    It skips damaged and deleted documents.
    """
    found: list[Hit] = []
    # the read of a title has already verified the row
    rest = (hit for hit in ranked if hit.metadata is not None or _sound(index, hit))
    next(islice(rest, offset, offset), None)
    while chunk := list(islice(rest, limit - offset - len(found))):
        if chunk[0].metadata is None:
            rows = [hit.row for hit in chunk]
            heads = await listing.heads(index, [hit.id for hit in chunk], rows)
            chunk = [
                replace(hit, title=heads[hit.id].title, metadata=heads[hit.id].metadata)
                for hit in chunk
                if hit.id in heads
            ]
        found += chunk
    return found


def _sound(index: Index, hit: Hit) -> bool:
    """Whether the vector is intact, so that the cosine and the rank are right."""
    payload = {Part.VECTOR: (hit.vector.astype("<f4").tobytes(),)}
    if sound(hit.digest, hit.id, payload):
        return True
    index.note_damage([Part.VECTOR], 1)
    return False


async def _by_vector(index: Index, query: Query, limit: int, where: Where | None) -> _Rows:
    wide = math.ceil(OVERSAMPLE * limit)
    if query.profile is not None:
        wide = max(wide, ADAPTED_CANDIDATES)
    search = index.table.query().nearest_to(query.vector).column("vector")
    search = search.distance_type("cosine").ef(max(100, wide + len(query.exclude)))
    return await _run(index, search, query, wide, where, "_distance")


async def _by_words(index: Index, query: Query, limit: int, where: Where | None) -> _Rows:
    frequencies = await index.vocabulary.frequencies(index)
    words = await executors.STORE.run(frequencies.top_terms, query.text)
    search = index.table.query().nearest_to_text(words, columns=["text"])
    return await _run(index, search, query, limit, where, "_score")


async def _run(
    index: Index,
    search: AsyncStandardQuery,
    query: Query,
    limit: int,
    where: Where | None,
    rank: str,
) -> _Rows:
    if where is not None:
        search = search.where(where)
    most = limit + len(query.exclude) + 1
    whole = index.identity.bounded and most * HEAD_BYTES <= listing.PAGE_BYTES
    parts = (Part.VECTOR, Part.HEAD, Part.STATE) if whole else (Part.VECTOR,)
    search = search.select([*checksums.columns(*parts), rank])
    # this leaves documents out, because a condition would cost as much as a search
    found = await search.with_row_id().limit(most).to_arrow()
    others = [not query.leaves_out(name) for name in texts(found["id"])]
    if not all(others):
        found = found.filter(pa.array(others))
    found = found.slice(0, limit)
    return _Rows(await index.sound(found, *parts) if whole else found, query, rank)


def dense(query: Query, vectors: Vectors) -> Vectors:
    """The dense score of vectors for a query: the cosine, adapted if the query has a profile.

    Args:
        query: of the search.
        vectors: float32 ``[documents, dimensions]``.
    """
    profile = query.profile
    if profile is None:
        return _cosines(vectors, query.vector)
    with np.errstate(all="ignore"), _BLAS.limit(limits=1, user_api="blas"):
        return _cosines(profile.apply(vectors), profile.apply(query.vector))


def _cosines(vectors: Vectors, query: Vectors) -> Vectors:
    # a damaged vector may hold numbers of any size, NaN included
    with np.errstate(all="ignore"):
        cosines: Vectors = np.nan_to_num(np.clip(vectors @ query, -1, 1))
    return cosines


class _Rows:
    """The result of a search; makes hits only of the requested rows.

    Attributes:
        ids: of the documents, in the order of the search.
        ranks: the values that rank them.
        by_cosine: ids by their dense score, highest first: the cosine to the query, adapted if
            the query has a profile.
    """

    def __init__(self, found: pa.Table, query: Query, rank: str) -> None:
        self.ids: list[str] = texts(found["id"])
        self.ranks: list[float] = found[rank].to_pylist()
        self._places = {name: place for place, name in enumerate(self.ids)}
        empty = np.zeros((0, query.vector.size), np.float32)
        self._vectors = matrix(found) if found.num_rows else empty
        self._cosines: list[float] = _cosines(self._vectors, query.vector).tolist()
        scores = dense(query, self._vectors)
        self._scores: list[float] = scores.tolist()
        self.by_cosine = [self.ids[place] for place in np.argsort(-scores, kind="stable")]
        self._rows = found["_rowid"].to_pylist()
        self._digests = texts(found["digest"])
        self._found = found

    def dense(self, name: str) -> float:
        """The score of one row by vector."""
        return self._scores[self._places[name]]

    def found(self, name: str) -> Found:
        """The place and the digest of one row."""
        place = self._places[name]
        return Found(self._rows[place], self._digests[place])

    def hit(self, name: str, score: float | None = None, words: float = 0.0) -> Hit:
        """One row, with its dense score unless another is given."""
        place = self._places[name]
        title = metadata = None
        if "metadata" in self._found.schema.names:
            title, metadata = (self._found[c][place].as_py() for c in ("title", "metadata"))
        return Hit(
            id=name,
            row=self._rows[place],
            vector=self._vectors[place],
            cosine=self._cosines[place],
            score=self._scores[place] if score is None else score,
            words=words,
            title=title,
            metadata=metadata,
            digest=self._digests[place],
        )
