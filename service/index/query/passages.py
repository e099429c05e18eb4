"""Searches an index by passages: the windows of documents that fit a query best.

Documents are candidates by their nearest window, and by their words. Whatever an approximate index
found, the answer is computed from the candidates' stored rows, which are verified.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ranking import passages as ranking
from ranking.fusion import fuse
from service import executors
from service.errors import InvalidError
from service.index.documents import Index
from service.index.query.filters import Where
from service.index.query.passage_candidates import (
    SCORED,
    Candidate,
    bounded,
    by_window,
    by_words,
    likely,
    sized,
)
from service.index.query.passage_scores import Asked, Mode, best_scores, ends_of, windows_of
from service.index.query.reading import Query
from service.index.rows import checksums, outline, records, sizes, vectors
from service.index.rows.checksums import Part
from service.index.rows.outline import NONE, Outline
from service.index.rows.vectors import matrix
from windowing.pooling import Vectors, normalise

# documents that a search by windows gives at least
CANDIDATES = 50
# documents that a search by words gives: BM25 ranks a long document low for a few of its words
WORDED = 200

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
        page: that the part begins on, from 1; None if the document has no pages.
        heading: above the part's first character; None if there is none.
    """

    start: int
    end: int
    score: float
    cosine: float
    words: float
    snippet: tuple[int, int]
    text: str
    page: int | None
    heading: str | None


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
    top = await executors.STORE.run(frequencies.top_terms, query.text)
    asked = Asked(query, mode, ranking.terms(query.text, top, frequencies), form.documents)
    depth = max(CANDIDATES, 2 * form.documents)
    if mode == "cosine":
        near = await by_window(index, query, depth, where)
        candidates = (await sized(index, query, list(near)))[:depth]
    else:
        near, worded = await asyncio.gather(
            by_window(index, query, depth if mode == "hybrid" else 0, where),
            by_words(index, query, top, WORDED, where),
        )
        rows = list(fuse(list(near), worded))
        rows = await likely(index, rows, near, asked, frequencies.idf)
        candidates = bounded(await sized(index, query, rows))
    parts = SCORED if mode == "cosine" else (*SCORED, Part.TEXT)
    scored: dict[str, float] = {}
    async for rows in _rows(index, candidates, parts):
        scored |= await executors.WORDS.run(best_scores, rows, asked)
    known = {one.id: one for one in candidates}
    ranked = [known[name] for name in sorted(scored, key=lambda name: (-scored[name], name))]
    return await _answer(index, ranked, asked, form)


async def _answer(
    index: Index, ranked: Sequence[Candidate], asked: Asked, form: Form
) -> list[Found]:
    """The first documents, from one read of each; skips damaged and deleted ones."""
    found: list[Found] = []
    rest = list(ranked)
    further = outline.columns(index.schema.names)
    while rest and len(found) < form.documents:
        wanted = form.documents - len(found)
        part, rest = rest[:wanted], rest[wanted:]
        async for rows in _rows(index, part, _ANSWERED, further):
            found += await executors.WORDS.run(_found, rows, asked, form)
    return sorted(found, key=lambda one: (-one.passages[0].score, one.id))


async def _rows(
    index: Index,
    candidates: Sequence[Candidate],
    parts: Sequence[Part],
    further: Sequence[str] = (),
) -> AsyncIterator[pa.Table]:
    """Parts of the candidates that are sound and not deleted, some at a time."""
    text = Part.TEXT in parts
    of = {one.id: one.bytes + (one.characters if text else 0) for one in candidates}
    places = {one.id: one.row for one in candidates}
    columns = [*checksums.columns(*parts), *further]
    for group in sizes.groups(of):
        async with sizes.turn(sum(of[name] for name in group)):
            found = await index.read(group, columns, [places[name] for name in group])
            found = await index.sound(found, *parts)
            if found.num_rows:
                yield found


def _found(rows: pa.Table, asked: Asked, form: Form) -> list[Found]:
    documents = np.clip(matrix(rows) @ asked.query.vector, -1, 1)
    held = rows.select(["id", "title", "metadata", "text"]).to_pylist()
    blobs = vectors.blobs(rows["windows"])
    return [
        Found(
            id=row["id"],
            title=row["title"],
            metadata=row["metadata"],
            cosine=float(cosine),
            passages=_passages(
                row["text"],
                known or NONE,
                windows,
                ends,
                asked,
                form,
            ),
        )
        for row, blob, ends, cosine, known in zip(
            held, blobs, ends_of(rows), documents, records.outlines(rows), strict=True
        )
        if (windows := windows_of(blob, ends, asked)) is not None
    ]


def _passages(
    text: str, known: Outline, windows: Vectors, ends: list[int], asked: Asked, form: Form
) -> list[Passage]:
    scores, cosines, shares = asked.scores(windows, ends, text)
    best = np.argsort(-scores, kind="stable")[: form.passages].tolist()
    found = []
    for place in best:
        start, end = ends[place - 1] if place else 0, ends[place]
        first, last = ranking.snippet(text, start, end, form.characters, asked.terms)
        # blank lines may stand before a heading
        begins = last - len(text[first:last].lstrip())
        score, cosine, share = (float(of[place]) for of in (scores, cosines, shares))
        found.append(
            Passage(
                start=start,
                end=end,
                score=score,
                cosine=cosine,
                words=share,
                snippet=(first, last),
                text=text[first:last],
                page=known.page(begins),
                heading=known.heading(begins),
            )
        )
    return found
