"""Finds passages: candidates by windows and words, their scores, and the best of each document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.query import BooleanQuery, FullTextQuery, MatchQuery, Occur
from lancedb.query import FullTextOperator as Op

from docsplit.ranking import passages as ranking
from docsplit.ranking.fusion import fuse
from docsplit.ranking.words import lined, placed
from docsplit.windowing.pooling import Vectors, normalise
from service import executors
from service.errors import InvalidError
from service.index import documents as sizes
from service.index.documents import Index
from service.index.query.filters import Where, filtered, live
from service.index.query.reading import Query, cosines, matching, ordered
from service.index.row_cache import measured, take
from service.index.rows import checksums, derived, records
from service.index.rows.checksums import Part, texts
from service.index.rows.derived import NONE, Outline
from service.index.rows.vectors import vector_matrix, window_blobs, windows_searchable

if TYPE_CHECKING:
    from lancedb.query import AsyncVectorQuery

Mode = Literal["cosine", "words", "hybrid"]

# weight of the cosine in a hybrid score; more of it finds fewer planted sentences
VECTOR_SHARE = np.float32(0.3)


@dataclass(frozen=True, slots=True)
class Asked:
    """A query by passages.

    Attributes:
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
    ends, blobs = ends_of(rows), window_blobs(rows["windows"])
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


# documents whose texts a search by words reads
READ = 64
# words whose sets find documents
_COMBINED = 4
# an approximate search finds windows: several may belong to one document
_OVERSAMPLE = 4
# characters of the documents whose words one request compares, besides the first
_CHARACTERS = 24_000_000
# rows of an earlier version's table read at a time
_SCAN_ROWS = 256


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document that may have one of the best passages.

    Attributes:
        characters: of the text.
        bytes: of the windows' vectors.
        row: position in the table at the time of the search.
    """

    id: str
    characters: int
    bytes: int
    row: int


async def by_window(index: Index, query: Query, limit: int, where: Where | None) -> list[int]:
    """The rows of the documents with the nearest windows, the nearest first."""
    if not limit:
        return []
    if not windows_searchable(index.schema):
        return await _by_every_window(index, query, limit, where)

    def nearest(most: int) -> AsyncVectorQuery:
        search = index.table.query().nearest_to(query.vector).column("windows")
        search = search.distance_type("cosine").select(["_distance"])
        return search.limit(most).with_row_id()

    async def search(most: int) -> pa.Table:
        if where is None:
            return await nearest(most).to_arrow()
        return await filtered(
            index, lambda parts: nearest(most).where(where.form).nprobes(parts).to_arrow(), where
        )

    found = await ordered(search, _OVERSAMPLE * limit, "_distance", "ascending")
    # the query's own document is among them
    return list(dict.fromkeys(found["_rowid"].to_pylist()[: limit + 1]))


async def _by_every_window(
    index: Index, query: Query, limit: int, where: Where | None
) -> list[int]:
    """The same in a table of an earlier version, whose windows LanceDB cannot search."""
    search = index.table.query().where(live(where).form)
    held: dict[int, float] = {}
    columns = checksums.columns(Part.WINDOWS, Part.STATE)
    search = search.select(columns).with_row_id()
    async for batch in await search.to_batches(max_batch_length=_SCAN_ROWS):
        rows = pa.Table.from_batches([batch])
        asked = Asked(query, "cosine", ranking.NONE, limit, None)
        best = await executors.STORE.run(scored, rows, asked)
        # a row whose windows contradict themselves has no score
        pairs = zip(rows["_rowid"].to_pylist(), texts(rows["id"]), strict=True)
        held |= {row: best[name].best for row, name in pairs if name in best}
        held = dict(sorted(held.items(), key=lambda pair: -pair[1])[: limit + 1])
    return list(held)


async def by_words(
    index: Index, words: str, limit: int, where: Where | None, least: int = 0
) -> list[int]:
    """The rows of the documents with the highest BM25 for some words, the highest first.

    Args:
        limit: most rows.
        least: rows that are enough, as ``ordered`` has it.
    """
    # the query's own document may be among them
    return [*await matching(index, words, limit + 1, where, least=least + 1)]


async def by_sets(
    index: Index,
    words: Sequence[str],
    size: int,
    limit: int,
    where: Where | None,
    least: int = 0,
) -> list[int]:
    """The rows of documents that have ``size`` of the first words; by BM25, the highest first.

    BM25 ranks a long document below short ones that have fewer of the words. So ``by_words`` may
    miss a document with the query's sentence in its middle.

    Args:
        words: of the query, those that distinguish it most first.
    """
    sets = combinations(words[:_COMBINED], size)
    column = await index.vocabulary.column(index)
    every = [(Occur.SHOULD, _all(chosen, column)) for chosen in sets]
    if not every:
        return []
    return [*await matching(index, BooleanQuery(every), limit + 1, where, least=least + 1)]


def _all(words: Sequence[str], column: str) -> FullTextQuery:
    # its fields have defaults that mypy does not see
    return MatchQuery(" ".join(words), column, operator=Op.AND)  # type: ignore[call-arg]


async def sized(index: Index, query: Query, rows: Sequence[int]) -> list[Candidate]:
    """The documents of some rows, in their order, without that of the query."""
    if not rows:
        return []
    found = index.row_cache.find(index.table, rows)
    if found is None:
        found = measured(await take(index.table, rows, sizes.SIZE_COLUMNS))
    columns = (found[name].to_pylist() for name in ("_rowid", "characters", "windows"))
    size = query.vector.size * 2
    known = {
        row: Candidate(name, characters, windows * size, row)
        for name, row, characters, windows in zip(texts(found["id"]), *columns, strict=True)
        if name != query.id
    }
    return [known[row] for row in rows if row in known]


def bounded(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first candidates, within the limit of characters."""
    taken: list[Candidate] = []
    characters = 0
    for one in candidates:
        characters += one.characters
        if taken and characters > _CHARACTERS:
            break
        taken.append(one)
    return taken


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
    """What an answer holds of each document."""

    documents: int
    passages: int
    characters: int


@dataclass(frozen=True, slots=True)
class Snippet:
    """Characters ``[start, end)`` of a document, in code points."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A window of a document, in the shape of an answer.

    Attributes:
        start: first character of the window, in code points.
        score: that ranks it.
        words: share of the query's words that it contains, by weight, 0 to 1.
        page: of the snippet's weightiest word, from 1; None if the document has no pages.
        heading: the last one up to that word; None if there is none.
        snippet: its part that fits the query's words best.
    """

    start: int
    end: int
    score: float
    cosine: float
    words: float
    page: int | None
    heading: str | None
    snippet: Snippet


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
    held = records.windows(window_blobs(found["windows"])[0], ends)
    starts = np.array([0, *ends[:-1]])
    shared = np.minimum(ends, end) - np.maximum(starts, start)
    vector = normalise(np.maximum(shared, 0) @ held.vectors)
    return Query(vector, text[start:end], document_id)


async def search(
    index: Index, query: Query, mode: Mode, form: Form, where: Where | None
) -> list[Found]:
    """Documents with the best passages for a query, the best first.

    Args:
        query: leaves out the document of its id.
        mode: ``cosine`` ranks windows by their cosine, ``words`` by the share of the query's words
            that they contain, ``hybrid`` by both.
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
        top: its top terms, for a query without words to look for.
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
        ranked: the documents, the best first.
        kept: the first ones, with the scores of their windows.
    """
    found: list[Found] = []
    rest = list(ranked)
    further = derived.outline_columns(index.schema.names)
    while rest and len(found) < form.documents:
        wanted = form.documents - len(found)
        part, rest = rest[:wanted], rest[wanted:]
        known = [one for one in part if one.id in kept]
        async for rows in _rows(index, known, _REST, further):
            found += _reserved(await executors.WORDS.run(_found, rows, kept, asked, form), asked)
        unknown = [one for one in part if one.id not in kept]
        words = [asked.column] if asked.column == derived.WORDS else []
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
    for group in sizes.groups_by_size(of):
        async with sizes.turn_of_size(sum(of[name] for name in group)):
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
    documents = cosines(vector_matrix(rows), asked.query.vector)
    held = rows.select(["id", "digest", "title", "metadata", "text"]).to_pylist()
    if asked.mode == "cosine":
        _add_shares({row["id"]: row["text"] for row in held}, scored, asked, form)
    found = []
    for row, cosine, known in zip(held, documents, records.outlines(rows), strict=True):
        one = scored.get(row["id"])
        if one is None or one.digest != row["digest"]:
            continue
        passages = _passages(row["text"], known or NONE, one, asked, form)
        found.append(Found(row["id"], row["title"], row["metadata"], float(cosine), passages))
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
        # Where its weightiest word stands: the end of another section may precede it. Without one,
        # its beginning; blank lines may stand before a heading.
        weights, blank = asked.terms.weights, last - first - len(text[first:last].lstrip())
        said = placed(text[first:last], weights.keys())
        at = first + max(said, key=lambda one: weights[one[0]], default=("", blank))[1]
        each = (scored.scores, scored.cosines, scored.shares)
        score, cosine, share = (float(of[place]) for of in each)
        snippet = Snippet(first, last, text[first:last])
        page, heading = known.page(at), known.heading(at)
        found.append(Passage(start, end, score, cosine, share, page, heading, snippet))
    return found
