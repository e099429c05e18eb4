"""Searches an index by passages: the windows of documents that fit a query best.

Documents are candidates by their nearest window, and by their words. Whatever an approximate index
found, the answer is computed from the candidates' stored rows, which are verified.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from lancedb.expr import col, lit

from ranking import passages as ranking
from ranking.fusion import fuse
from service import executors
from service.errors import InvalidError
from service.index.documents import Index, matrix
from service.index.query.filters import Where, live
from service.index.query.search import Query
from service.index.rows import checksums, records, vectors
from service.index.rows.checksums import Part, texts
from windowing.pooling import Vectors, normalise

Mode = Literal["cosine", "words", "hybrid"]

# documents that a search by windows gives at least
CANDIDATES = 100
# documents that a search by words gives: BM25 ranks a long document low for a few of its words
WORDED = 200
# an approximate search finds windows: several may belong to one document
_OVERSAMPLE = 4
# weight of the cosine in a hybrid score; more of it finds fewer planted sentences
VECTOR_SHARE = np.float32(0.3)
# characters of the documents whose words one request compares, besides the first
_CHARACTERS = 24_000_000
# characters and bytes of windows read at a time, besides those of one document
_READ_BYTES = 32 * 2**20
# rows of an earlier version's table read at a time
_SCAN_ROWS = 256

_SCORED = (Part.WINDOWS, Part.STATE)
_ANSWERED = (Part.WINDOWS, Part.STATE, Part.TEXT, Part.VECTOR, Part.HEAD)


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer holds of each document.

    Attributes:
        documents: most documents.
        passages: most passages of each.
        characters: most characters of a snippet.
    """

    documents: int
    passages: int
    characters: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A window of a document.

    Attributes:
        start: first character of the window, in code points.
        end: one past its last.
        score: that ranks it.
        cosine: to the query.
        words: share of the query's words that it contains, by weight, 0 to 1.
        snippet: characters ``[start, end)`` of its part that fits the query's words best.
        text: of that part.
    """

    start: int
    end: int
    score: float
    cosine: float
    words: float
    snippet: tuple[int, int]
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """A document with its best passages, the best first.

    Attributes:
        cosine: of the document's vector and the query.
        metadata: a JSON object.
    """

    id: str
    title: str | None
    metadata: str
    cosine: float
    passages: list[Passage]


@dataclass(frozen=True, slots=True)
class _Candidate:
    id: str
    characters: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Asked:
    query: Query
    mode: Mode
    terms: ranking.Terms

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


async def part_of(index: Index, document_id: str, start: int, end: int) -> Query:
    """The query for a part of a stored document: its windows' mean, by their shared characters.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the stored document does not match its checksums.
        InvalidError: the part lies outside of the document.
    """
    found = await index.one(document_id, Part.TEXT, Part.WINDOWS)
    text, ends = found["text"][0].as_py(), found["window_ends"][0].as_py()
    if start >= len(text):
        raise InvalidError("start: the document ends before it", "start")
    held = records.windows(vectors.blobs(found["windows"])[0], ends)
    starts = np.array([0, *ends[:-1]])
    shared = np.minimum(ends, end) - np.maximum(starts, start)
    vector = normalise(np.maximum(shared, 0) @ held.vectors)
    return Query(vector, text[start:end], document_id)


async def search(
    index: Index, query: Query, mode: Mode, form: Form, where: Where | None
) -> list[Found]:
    """Documents with the best passages for a query, the best first.

    Args:
        index: whose windows are searched.
        query: leaves out the document of its id.
        mode: ``cosine`` ranks windows by their cosine, ``words`` by the share of the query's words
            that they contain, ``hybrid`` by both.
        form: of the answer.
        where: a condition on documents.
    """
    frequencies = await index.vocabulary.frequencies(index)
    asked = _Asked(query, mode, ranking.terms(query.text, frequencies))
    depth = max(CANDIDATES, 2 * form.documents)
    top = frequencies.top_terms(query.text)
    if mode == "cosine":
        candidates = await _by_window(index, query, depth, where)
    else:
        near, worded = await asyncio.gather(
            _by_window(index, query, depth if mode == "hybrid" else 0, where),
            _by_words(index, query, top, WORDED, where),
        )
        known = {one.id: one for one in (*near, *worded)}
        order = fuse([one.id for one in near], [one.id for one in worded])
        candidates = _bounded([known[name] for name in order])
    parts = _SCORED if mode == "cosine" else (*_SCORED, Part.TEXT)
    scored: dict[str, float] = {}
    async for rows in _rows(index, candidates, parts):
        scored |= await executors.STORE.run(_best, rows, asked)
    sizes = {one.id: one for one in candidates}
    ranked = [sizes[name] for name in sorted(scored, key=lambda name: (-scored[name], name))]
    return await _answer(index, ranked, asked, form)


async def _answer(
    index: Index, ranked: Sequence[_Candidate], asked: _Asked, form: Form
) -> list[Found]:
    """The first documents, from one read of each; skips damaged and deleted ones."""
    found: list[Found] = []
    rest = list(ranked)
    while rest and len(found) < form.documents:
        wanted = form.documents - len(found)
        part, rest = rest[:wanted], rest[wanted:]
        async for rows in _rows(index, part, _ANSWERED):
            found += await executors.STORE.run(_found, rows, asked, form)
    return sorted(found, key=lambda one: (-one.passages[0].score, one.id))


async def _by_window(
    index: Index, query: Query, limit: int, where: Where | None
) -> list[_Candidate]:
    if not limit:
        return []
    if not vectors.searchable(index.schema):
        return await _by_every_window(index, query, limit, where)
    search = index.table.query().nearest_to(query.vector).column("windows")
    search = search.distance_type("cosine")
    if where is not None:
        search = search.where(where)
    search = search.select(["id", "window_ends", "_distance"]).limit(_OVERSAMPLE * limit)
    found = await search.to_arrow()
    return _candidates(found, query, limit)


async def _by_every_window(
    index: Index, query: Query, limit: int, where: Where | None
) -> list[_Candidate]:
    """The same in a table of an earlier version, whose windows LanceDB cannot search."""
    search = index.table.query().where(live(where))
    held: list[tuple[float, _Candidate]] = []
    columns = checksums.columns(*_SCORED)
    async for batch in await search.select(columns).to_batches(max_batch_length=_SCAN_ROWS):
        rows = pa.Table.from_batches([batch])
        best = await executors.STORE.run(_best, rows, _Asked(query, "cosine", ranking.NONE))
        held += [(best[one.id], one) for one in _candidates(rows, query, rows.num_rows)]
        held = sorted(held, key=lambda pair: -pair[0])[:limit]
    return [one for _, one in held]


async def _by_words(
    index: Index, query: Query, words: str, limit: int, where: Where | None
) -> list[_Candidate]:
    search = index.table.query().nearest_to_text(words, columns=["text"])
    if where is not None:
        search = search.where(where)
    found = await search.select(["id", "window_ends", "_score"]).limit(limit + 1).to_arrow()
    return _candidates(found, query, limit)


def _candidates(found: pa.Table, query: Query, limit: int) -> list[_Candidate]:
    pairs = zip(texts(found["id"]), found["window_ends"].to_pylist(), strict=True)
    size = query.vector.size * 2
    return [
        _Candidate(name, max(ends, default=0), len(ends) * size)
        for name, ends in pairs
        if name != query.id
    ][:limit]


def _bounded(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The first candidates, within the limit of characters."""
    taken: list[_Candidate] = []
    characters = 0
    for one in candidates:
        characters += one.characters
        if taken and characters > _CHARACTERS:
            break
        taken.append(one)
    return taken


async def _rows(
    index: Index, candidates: Sequence[_Candidate], parts: Sequence[Part]
) -> AsyncIterator[pa.Table]:
    """Parts of the candidates that are sound and not deleted, some at a time."""
    for chunk in _chunks(candidates, text=Part.TEXT in parts):
        named = [lit(one.id) for one in chunk]
        found = await index.select(col("id").isin(named), checksums.columns(*parts), len(named))
        found = await index.sound(found, *parts)
        if found.num_rows:
            yield found


def _chunks(candidates: Iterable[_Candidate], *, text: bool) -> list[list[_Candidate]]:
    chunks: list[list[_Candidate]] = []
    size = 0
    for one in candidates:
        own = one.bytes + (one.characters if text else 0)
        if not chunks or size + own > _READ_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(one)
        size += own
    return chunks


def _best(rows: pa.Table, asked: _Asked) -> dict[str, float]:
    """The score of each document's best window."""
    best = {}
    held = texts(rows["text"]) if "text" in rows.schema.names else [None] * rows.num_rows
    for name, text, blob, ends in zip(
        texts(rows["id"]), held, vectors.blobs(rows["windows"]), _ends(rows), strict=True
    ):
        windows = _windows(blob, ends, asked)
        if windows is not None:
            scores, _, _ = asked.scores(windows, ends, text)
            best[name] = float(scores.max())
    return best


def _windows(blob: bytes | None, ends: Sequence[int], asked: _Asked) -> Vectors | None:
    """Windows ``[windows, dimensions]``; None if an unverified row contradicts itself."""
    if not ends or len(blob or b"") != len(ends) * asked.query.vector.size * 2:
        return None
    return records.windows(blob, list(ends)).vectors


def _found(rows: pa.Table, asked: _Asked, form: Form) -> list[Found]:
    documents = np.clip(matrix(rows) @ asked.query.vector, -1, 1)
    held = rows.select(["id", "title", "metadata", "text"]).to_pylist()
    blobs = vectors.blobs(rows["windows"])
    return [
        Found(
            id=row["id"],
            title=row["title"],
            metadata=row["metadata"],
            cosine=float(cosine),
            passages=_passages(row["text"], windows, ends, asked, form),
        )
        for row, blob, ends, cosine in zip(held, blobs, _ends(rows), documents, strict=True)
        if (windows := _windows(blob, ends, asked)) is not None
    ]


def _passages(
    text: str, windows: Vectors, ends: list[int], asked: _Asked, form: Form
) -> list[Passage]:
    scores, cosines, shares = asked.scores(windows, ends, text)
    best = np.argsort(-scores, kind="stable")[: form.passages].tolist()
    found = []
    for place in best:
        start, end = ends[place - 1] if place else 0, ends[place]
        first, last = ranking.snippet(text, start, end, form.characters, asked.terms)
        score, cosine, share = (float(of[place]) for of in (scores, cosines, shares))
        found.append(Passage(start, end, score, cosine, share, (first, last), text[first:last]))
    return found


def _ends(rows: pa.Table) -> list[list[int]]:
    ends: list[list[int]] = rows["window_ends"].to_pylist()
    return ends
