"""Reads the rows that searches find, and makes hits of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.query import FullTextQuery
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from docsplit.ranking.adaptation import Profile
from docsplit.ranking.terms import Bag
from docsplit.windowing.pooling import Vectors
from service import executors
from service.index.documents import Index
from service.index.query import listing
from service.index.query.filters import Where
from service.index.query.words import COMPARED, Found
from service.index.row_cache import take
from service.index.rows import checksums, derived
from service.index.rows.checksums import Part, texts
from service.index.rows.fields import HEAD_BYTES
from service.index.rows.vectors import vector_matrix

Direction = Literal["cites", "cited_by"]
# what a search ranks by, of each row, in its order
Ranks = dict[int, float]

# If the last wanted row has equals, the next search finds this many rows, each further one eight
# times as many, until it has all equals or reaches the limit of its rank.
_TIED, _MORE = 1000, 8
# each limit costs some .13 s of a core (300,000 texts, 200,000 vectors); 131,072 vectors cost .7 s
_MOST_TIED = {"_score": 1 << 17, "_distance": 1 << 13}
# sorting more rows than these runs in a thread
_SORTED = 10_000
# most attempts to read rows before a compaction moves them
_READS = 3
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
        reserve: called with the number of characters of titles and metadata that were read for the
            answer, before more are read; raises if there is no memory for them.
    """

    vector: Vectors
    text: str
    id: str | None = None
    exclude: frozenset[str] = frozenset()
    offset: int = 0
    profile: Profile | None = None
    reserve: Callable[[int], None] = lambda _: None

    def leaves_out(self, name: str) -> bool:
        """Whether the answer must not contain a document."""
        return name == self.id or name in self.exclude


@dataclass(frozen=True, slots=True)
class Shared:
    """What connects a document with a query document in the graph of links.

    Attributes:
        score: mean of two cosines, 0 to 1; see ``service.index.link_graph``.
        references: number of documents that both cite.
        citing: number of documents that cite both.
    """

    score: float
    references: int
    citing: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A found document.

    Attributes:
        row: position of the document in the table at the time of the search.
        score: the value that ranks the hits.
        words: of a hybrid search: the cosine of the words, or BM25 for a short query.
        title: read with the vectors by the mode cosine if all titles and metadata are small
            enough; otherwise only for the hits of the answer, and verified with them.
        metadata: a JSON object; None if title and metadata are not read yet.
        digest: with the checksum that verifies the vector.
        shared: of a search by the graph of links.
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
    shared: Shared | None = None


async def read(
    index: Index,
    query: Query,
    search: Callable[[], Awaitable[Sequence[Ranks]]],
    *,
    words: bool = False,
    heads: bool = False,
) -> Rows:
    """The rows that searches find, and what their ranking needs.

    One read of all rows costs less than a read in each search, and less than leaving documents out
    by a condition.

    Args:
        words: read the documents' words.
        heads: read titles and metadata too, if they are small enough.
    """
    words = words and derived.TERMS in index.schema.names
    wrong = False
    for _ in range(_READS):
        ranks = await search()
        rows = list(dict.fromkeys(chain(*ranks)))
        heads = heads and index.identity.bounded and len(rows) * HEAD_BYTES <= listing.PAGE_BYTES
        parts = (Part.VECTOR, Part.HEAD, Part.STATE) if heads else (Part.VECTOR,)
        columns, known = checksums.columns(*parts), None
        if words and len(rows) <= COMPARED:
            columns.append(derived.TERMS)
            known = None if wrong else index.row_cache.find(index.table, rows)
        found = await take(index.table, rows, columns, known)
        if wrong:
            index.row_cache.compare(index.table, found)
        made = await executors.STORE.run(Rows, found, query, ranks, parts)
        # the words of a row verify the digest that the cache has for it
        wrong = known is not None and not made.worded
        # a compaction between the two reads moves rows
        if not wrong and found.num_rows == len(rows):
            break
    return made


async def matching(
    index: Index,
    words: str | FullTextQuery,
    limit: int,
    where: Where | None,
    *,
    least: int | None = None,
) -> Ranks:
    """The rows with the highest BM25 for some words, the highest first.

    Args:
        limit: most rows.
        least: as ``ordered`` has it.
    """

    column = await index.vocabulary.column(index)

    async def search(most: int) -> pa.Table:
        found = index.table.query().nearest_to_text(words, columns=[column])
        if where is not None:
            found = found.where(where.form)
        return await found.select(["_score"]).with_row_id().limit(most).to_arrow()

    return ranked(await ordered(search, limit, "_score", "descending", least=least), "_score")


async def ordered(
    search: Callable[[int], Awaitable[pa.Table]],
    most: int,
    rank: str,
    order: str,
    *,
    least: int | None = None,
) -> pa.Table:
    """The first rows of a search, equal ones in the order of the table.

    LanceDB finds any of the rows with an equal rank, others the next time, and others if it is to
    find more rows. So the pages of an answer would repeat some documents and lack others.

    Args:
        search: finds a number of rows, the best first.
        most: rows that are wanted.
        rank: the column that the search ranks by.
        order: of the rank, "ascending" or "descending".
        least: rows that are enough for candidates. If so many rows, and half of the wanted ones,
            rank above the last one, the result ends before its equals, and no search follows.
    """
    asked = most + 1
    found = await search(asked)
    if least is not None and found.num_rows >= asked:
        better = pc.sum(pc.not_equal(found[rank], found[rank][-1])).as_py()
        if better < most and better >= max(least, most / 2):
            found = found.slice(0, better)
    more, limit = max(_TIED, 2 * most), max(2 * most, _MOST_TIED[rank])
    while found.num_rows >= asked < limit and found[rank][most - 1] == found[rank][-1]:
        asked = min(more, limit)
        more *= _MORE
        found = await search(asked)
    keys = [(rank, order), ("_rowid", "ascending")]
    if found.num_rows > _SORTED:
        found = await executors.STORE.run(found.sort_by, keys)
    else:
        found = found.sort_by(keys)
    return found.slice(0, most)


def ranked(found: pa.Table, rank: str) -> Ranks:
    """What the rows of one search are ranked by, in its order."""
    return dict(zip(found["_rowid"].to_pylist(), found[rank].to_pylist(), strict=True))


def dense(query: Query, vectors: Vectors) -> Vectors:
    """The dense score of vectors for a query: the cosine, adapted if the query has a profile.

    Args:
        vectors: float32 ``[documents, dimensions]``.
    """
    profile = query.profile
    if profile is None:
        return cosines(vectors, query.vector)
    with np.errstate(all="ignore"), _BLAS.limit(limits=1, user_api="blas"):
        return cosines(profile.apply(vectors), profile.apply(query.vector))


def target(query: Query) -> Vectors:
    """The vector near which the documents with the highest dense scores lie."""
    if query.profile is None:
        return query.vector
    with _BLAS.limit(limits=1, user_api="blas"):
        return query.profile.direction(query.vector)


def cosines(vectors: Vectors, query: Vectors) -> Vectors:
    """The cosines of unit vectors ``[rows, dimensions]`` and one ``[dimensions]``."""
    # a damaged vector may hold numbers of any size, NaN included
    with np.errstate(all="ignore"):
        # unlike BLAS, this gives equal rows equal cosines
        products = np.einsum("ij,j->i", vectors, query)
        cosines: Vectors = np.nan_to_num(np.clip(products, -1, 1))
    return cosines


class Rows:
    """The rows of one or two searches, without those that the query leaves out.

    Attributes:
        dense: their dense scores, float32 ``[rows]``.
        documents: by id; in the order of the first search, then of the second.
        worded: whether the stored words of all are there and intact.
        parts: that were read, besides the words; nothing has verified them yet.
    """

    def __init__(
        self, found: pa.Table, query: Query, ranks: Sequence[Ranks], parts: Sequence[Part]
    ) -> None:
        places = {row: place for place, row in enumerate(found["_rowid"].to_pylist())}
        every = texts(found["id"])
        kept = [
            row
            for row in dict.fromkeys(chain(*ranks))
            if row in places and not query.leaves_out(every[places[row]])
        ]
        found = found.take(pa.array([places[row] for row in kept], pa.int64()))
        names, digests = [every[places[row]] for row in kept], texts(found["digest"])
        words: list[Bag | None] = [None] * len(kept)
        if derived.TERMS in found.schema.names:
            words = list(map(derived.opened_terms, found[derived.TERMS].to_pylist(), digests))
        self.worded = None not in words
        pairs = zip(names, kept, digests, words, strict=True)
        self.documents = {name: Found(row, digest, own) for name, row, digest, own in pairs}
        self.parts = parts
        self._ids = list(self.documents)
        self._kept = kept
        self._found = found
        self._ranks = ranks
        empty = np.zeros((0, query.vector.size), np.float32)
        self._vectors = vector_matrix(found) if kept else empty
        self._cosines = cosines(self._vectors, query.vector)
        self.dense = dense(query, self._vectors)

    def ranks(self, search: int) -> NDArray[np.float64]:
        """What one search ranked by, ``[rows]``; NaN for rows that only the other one found."""
        found = self._ranks[search]
        return np.array([found.get(row, np.nan) for row in self._kept], dtype=np.float64)

    async def sound(self, index: Index, places: Sequence[int]) -> list[int]:
        """The places of the rows among ``places`` whose parts match their checksums."""
        columns = checksums.columns(*self.parts)
        rows = self._found.select(columns).take(pa.array(places, pa.int64()))
        found = await index.sound(rows.append_column("place", pa.array(places)), *self.parts)
        kept: list[int] = found["place"].to_pylist()
        return kept

    def hit(self, place: int, score: float | None = None, words: float = 0.0) -> Hit:
        """One row, with its dense score unless another is given."""
        name = self._ids[place]
        title = metadata = None
        if "metadata" in self._found.schema.names:
            title, metadata = (self._found[c][place].as_py() for c in ("title", "metadata"))
        return Hit(
            id=name,
            row=self._kept[place],
            vector=self._vectors[place],
            cosine=float(self._cosines[place]),
            score=float(self.dense[place]) if score is None else score,
            words=words,
            title=title,
            metadata=metadata,
            digest=self.documents[name].digest,
        )
