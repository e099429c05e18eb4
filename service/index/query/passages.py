"""Searches an index by passages: the windows of documents that fit a query best.

Documents are candidates by their nearest window, and by their words. Whatever an approximate index
found, the answer is computed from the candidates' stored rows, which are verified.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from docsplit.ranking import passages as ranking
from docsplit.ranking.fusion import fuse
from docsplit.ranking.words import lined
from docsplit.windowing.pooling import normalise
from service import executors
from service.errors import InvalidError
from service.index.documents import Index
from service.index.query.filters import Where
from service.index.query.passage_candidates import (
    READ,
    Candidate,
    bounded,
    by_sets,
    by_window,
    by_words,
    sized,
)
from service.index.query.passage_scores import Asked, Mode, Scored, scored
from service.index.query.reading import Query, cosines
from service.index.row_cache import take
from service.index.rows import checksums, outline, records, sizes, terms, vectors
from service.index.rows.checksums import Part
from service.index.rows.outline import NONE, Outline
from service.index.rows.vectors import matrix

# documents that a search by windows gives at least
CANDIDATES = 50
# documents that a search by words gives, and one by sets of two or three words
WORDED = 100
IN_SETS = 50
# words of a query that find documents; all of them rank the windows
SOUGHT = 16

# parts of an answer that the search has not read yet
_REST = (Part.STATE, Part.VECTOR, Part.HEAD, Part.TEXT)


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
    mistakes = index.row_cache.mistakes
    frequencies = await index.vocabulary.frequencies(index)
    top = await executors.STORE.run(frequencies.top_terms, query.text)
    column = await index.vocabulary.column(index)
    own = ranking.terms(query.text, frequencies)
    asked = Asked(query, mode, own, form.documents, None if mode == "cosine" else column)
    candidates = await _candidates(index, asked, top, where)
    if mode == "words" and not (candidates and asked.terms.weights):
        # no document has any of the rare words, or the query has none
        every = ranking.terms(query.text, frequencies, common=True)
        if every.weights != asked.terms.weights:
            asked = replace(asked, terms=every)
            candidates = await _candidates(index, asked, top, where)
    scores: dict[str, float] = {}
    kept: dict[str, Scored] = {}
    async for group in _groups(candidates, mode != "cosine"):
        made, sound = await _compared(index, group, asked)
        scores |= {name: one.best for name, one in made.items()}
        kept |= sound
        # what the answer will need is not read again
        kept = {name: kept[name] for name in _ordered(scores)[: form.documents] if name in kept}
    if index.row_cache.mistakes > mistakes:
        # other documents than the found ones were read
        return await search(index, query, mode, form, where)
    held = {one.id: one for one in candidates}
    return await _answer(index, [held[name] for name in _ordered(scores)], kept, asked, form)


async def _candidates(index: Index, asked: Asked, top: str, where: Where | None) -> list[Candidate]:
    """The documents whose windows are compared, the most promising ones first.

    Args:
        index: whose windows are searched.
        asked: the query.
        top: its top terms, for a query without words to look for.
        where: a condition on documents.
    """
    query, mode = asked.query, asked.mode
    depth = max(CANDIDATES, 2 * asked.documents)
    if mode == "cosine":
        near = await by_window(index, query, depth, where)
        return (await sized(index, query, near))[:depth]
    words = list(asked.terms.weights)
    near, worded, pairs, triples = await asyncio.gather(
        by_window(index, query, depth if mode == "hybrid" else 0, where),
        by_words(index, " ".join(words[:SOUGHT]) or top, WORDED, where, asked.documents),
        by_sets(index, words, 2, IN_SETS, where, asked.documents),
        by_sets(index, words, 3, IN_SETS, where, asked.documents),
    )
    # a long document with the query's words is often found by its sets of three only
    rows = list(fuse(near, worded, pairs, triples, triples))
    # and the query's own document
    most = max(READ, 2 * asked.documents) + 1
    return bounded(await sized(index, query, rows[:most]))


def _ordered(scores: Mapping[str, float]) -> list[str]:
    return sorted(scores, key=lambda name: (-scores[name], name))


async def _answer(
    index: Index,
    ranked: Sequence[Candidate],
    kept: Mapping[str, Scored],
    asked: Asked,
    form: Form,
) -> list[Found]:
    """The first documents; skips damaged and deleted ones.

    Args:
        index: contains the documents.
        ranked: the documents, the best first.
        kept: the first ones, with the scores of their windows.
        asked: the query.
        form: of the answer.
    """
    found: list[Found] = []
    rest = list(ranked)
    further = outline.columns(index.schema.names)
    while rest and len(found) < form.documents:
        wanted = form.documents - len(found)
        part, rest = rest[:wanted], rest[wanted:]
        known = [one for one in part if one.id in kept]
        async for rows in _rows(index, known, _REST, further):
            found += _reserved(await executors.WORDS.run(_found, rows, kept, asked, form), asked)
        unknown = [one for one in part if one.id not in kept]
        words = [asked.column] if asked.column == terms.WORDS else []
        async for rows in _rows(index, unknown, (*_REST, Part.WINDOWS), [*further, *words]):
            made = await executors.WORDS.run(scored, rows, asked)
            found += _reserved(await executors.WORDS.run(_found, rows, made, asked, form), asked)
    return sorted(found, key=lambda one: (-one.passages[0].score, one.id))


def _reserved(found: list[Found], asked: Asked) -> list[Found]:
    asked.query.reserve(sum(len(one.title or "") + len(one.metadata) for one in found))
    return found


async def _rows(
    index: Index,
    candidates: Sequence[Candidate],
    parts: Sequence[Part],
    further: Sequence[str] = (),
) -> AsyncIterator[pa.Table]:
    """Parts of the candidates that are sound and not deleted, some at a time."""
    async for group in _groups(candidates, True):
        names, rows = [one.id for one in group], [one.row for one in group]
        found = await index.read(names, parts, rows, further)
        if found.num_rows:
            yield found


async def _groups(candidates: Sequence[Candidate], text: bool) -> AsyncIterator[list[Candidate]]:
    """Candidates that fit into memory together, with or without their texts or words.

    There is room for them until the next.
    """
    of = {one.id: one.bytes + (one.characters if text else 0) for one in candidates}
    held = {one.id: one for one in candidates}
    for group in sizes.groups(of):
        async with sizes.turn(sum(of[name] for name in group)):
            yield [held[name] for name in group]


async def _compared(
    index: Index, group: Sequence[Candidate], asked: Asked
) -> tuple[dict[str, Scored], dict[str, Scored]]:
    """The candidates of a group with their scores, and the best of them, which are verified.

    To verify only the best costs a fifth of verifying all. The answer reads others again.
    """
    names, rows = [one.id for one in group], [one.row for one in group]
    known = index.row_cache.find(index.table, rows)
    words = [asked.column] if asked.column else []
    read = await take(index.table, rows, [*checksums.columns(Part.WINDOWS), *words], known)
    made = await executors.WORDS.run(scored, read, asked)
    best = sorted(made, key=lambda name: -made[name].best)[: asked.documents]
    first = read.filter(pc.is_in(read["id"], pa.array(best, pa.string())))
    # a row that moved is missing, and one that contradicts itself has no score
    if len(made) == len(rows) and not any(await index.faults(first, Part.WINDOWS)):
        return made, {name: made[name] for name in best}
    sound = await index.read(names, [Part.WINDOWS], rows, words)
    made = await executors.WORDS.run(scored, sound, asked)
    return made, made


def _found(rows: pa.Table, scored: Mapping[str, Scored], asked: Asked, form: Form) -> list[Found]:
    """The documents of some rows, without those that changed since their windows were read."""
    documents = cosines(matrix(rows), asked.query.vector)
    held = rows.select(["id", "digest", "title", "metadata", "text"]).to_pylist()
    if asked.mode == "cosine":
        _add_shares({row["id"]: row["text"] for row in held}, scored, asked, form)
    found = []
    for row, cosine, known in zip(held, documents, records.outlines(rows), strict=True):
        one = scored.get(row["id"])
        if one is None or one.digest != row["digest"]:
            continue
        passages = _passages(row["text"], known or NONE, one, asked, form)
        found.append(
            Found(
                id=row["id"],
                title=row["title"],
                metadata=row["metadata"],
                cosine=float(cosine),
                passages=passages,
            )
        )
    return found


def _add_shares(
    held: Mapping[str, str], scored: Mapping[str, Scored], asked: Asked, form: Form
) -> None:
    """Set the shares of the windows of an answer that was ranked without them, all at once."""
    names = held.keys() & scored.keys()
    best = [(name, *window) for name in names for window in _best(scored[name], form)]
    words = [lined(held[name][start:end], [end - start]) for name, _, start, end in best]
    for (name, place, *_), share in zip(best, ranking.shares_of(words, asked.terms), strict=True):
        scored[name].shares[place] = share[0]


def _best(one: Scored, form: Form) -> Iterator[tuple[int, int, int]]:
    """The best windows: the number, the first character and one past the last of each."""
    ends = (0, *one.ends)
    for place in np.argsort(-one.scores, kind="stable")[: form.passages].tolist():
        yield place, ends[place], ends[place + 1]


def _passages(text: str, known: Outline, scored: Scored, asked: Asked, form: Form) -> list[Passage]:
    found = []
    for place, start, end in _best(scored, form):
        first, last = ranking.snippet(text, start, end, form.characters, asked.terms)
        # blank lines may stand before a heading
        begins = last - len(text[first:last].lstrip())
        each = (scored.scores, scored.cosines, scored.shares)
        score, cosine, share = (float(of[place]) for of in each)
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
