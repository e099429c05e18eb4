"""Candidates of a search by passages: documents by their nearest window and by their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ranking import passages as ranking
from ranking.bags import title_in
from service import executors
from service.index.documents import Index
from service.index.query.bags import stored
from service.index.query.filters import Where, live, sql
from service.index.query.passage_scores import VECTOR_SHARE, Asked, best_scores
from service.index.query.reading import Query
from service.index.rows import checksums, vectors
from service.index.rows.checksums import Part, texts

if TYPE_CHECKING:
    from lancedb.query import AsyncVectorQuery

# documents whose texts a search by words reads: those that contain most of the query's words
READ = 64
# an approximate search finds windows: several may belong to one document
_OVERSAMPLE = 4
# characters of the documents whose words one request compares, besides the first
_CHARACTERS = 24_000_000
# rows of an earlier version's table read at a time
_SCAN_ROWS = 256

SCORED = (Part.WINDOWS, Part.STATE)

_COLUMNS = ["id", "window_ends"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document that may have one of the best passages.

    Attributes:
        characters: of the text.
        bytes: of the windows' vectors.
        row: position in the table at the time of the search.
        cosine: of the nearest window; NaN if the search by windows did not find the document.
    """

    id: str
    characters: int
    bytes: int
    row: int
    cosine: float


async def by_window(index: Index, query: Query, limit: int, where: Where | None) -> list[Candidate]:
    """The documents with the nearest windows, the nearest first."""
    if not limit:
        return []
    if not vectors.searchable(index.schema):
        return await _by_every_window(index, query, limit, where)

    def nearest() -> AsyncVectorQuery:
        search = index.table.query().nearest_to(query.vector).column("windows")
        search = search.distance_type("cosine").select([*_COLUMNS, "_distance"])
        return search.limit(_OVERSAMPLE * limit).with_row_id()

    if where is None:
        found = await nearest().to_arrow()
    else:
        found = await index.filtered(
            lambda parts: nearest().where(where).nprobes(parts).to_arrow(), sql(where)
        )
    return _candidates(found, query, limit, 1 - np.asarray(found["_distance"]))


async def _by_every_window(
    index: Index, query: Query, limit: int, where: Where | None
) -> list[Candidate]:
    """The same in a table of an earlier version, whose windows LanceDB cannot search."""
    search = index.table.query().where(live(where))
    held: list[Candidate] = []
    columns = checksums.columns(*SCORED)
    search = search.select(columns).with_row_id()
    async for batch in await search.to_batches(max_batch_length=_SCAN_ROWS):
        rows = pa.Table.from_batches([batch])
        best = await executors.STORE.run(
            best_scores, rows, Asked(query, "cosine", ranking.NONE, limit)
        )
        # a row whose windows contradict themselves has no score
        cosines = np.array([best.get(name, np.nan) for name in texts(rows["id"])])
        held += [one for one in _candidates(rows, query, rows.num_rows, cosines) if one.id in best]
        held = sorted(held, key=lambda one: -one.cosine)[:limit]
    return held


async def by_words(
    index: Index, query: Query, words: str, limit: int, where: Where | None
) -> list[Candidate]:
    """The documents with the highest BM25 for some words, the highest first."""
    search = index.table.query().nearest_to_text(words, columns=["text"])
    if where is not None:
        search = search.where(where)
    search = search.select([*_COLUMNS, "_score"]).with_row_id()
    found = await search.limit(limit + 1).to_arrow()
    return _candidates(found, query, limit, np.full(found.num_rows, np.nan))


def _candidates(
    found: pa.Table, query: Query, limit: int, cosines: NDArray[np.floating[Any]]
) -> list[Candidate]:
    held = zip(
        texts(found["id"]),
        found["window_ends"].to_pylist(),
        found["_rowid"].to_pylist(),
        cosines.tolist(),
        strict=True,
    )
    size = query.vector.size * 2
    return [
        Candidate(name, max(ends, default=0), len(ends) * size, row, cosine)
        for name, ends, row, cosine in held
        if name != query.id
    ][:limit]


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


async def likely(
    index: Index, candidates: list[Candidate], asked: Asked, idf: NDArray[np.float32]
) -> list[Candidate]:
    """The ``READ`` candidates that may have the best windows: no window has more words than all.

    A document without stored words may have all words of the query.
    """
    most = max(READ, 2 * asked.documents)
    if len(candidates) <= most or not asked.terms.weights:
        return candidates
    bags = await stored(index, [one.row for one in candidates])
    words = " ".join(asked.terms.weights)
    held = [bags.get(one.id, b"") for one in candidates]
    shares = np.nan_to_num(await executors.STORE.run(title_in, words, held, idf), nan=1.0)
    scores = shares
    if asked.mode == "hybrid":
        cosines = np.array([one.cosine for one in candidates])
        # a document that the search by windows missed has no window nearer than those it found
        cosines = np.nan_to_num(cosines, nan=float(np.nanmin(np.append(cosines, 1.0))))
        scores = VECTOR_SHARE * cosines + (1 - VECTOR_SHARE) * shares
    order = np.argsort(-scores, kind="stable")[:most].tolist()
    return [candidates[place] for place in order]
