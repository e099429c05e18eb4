"""Candidates of a search by passages: documents by their nearest window and by their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import pyarrow as pa
from lancedb.query import BooleanQuery, FullTextQuery, MatchQuery, Occur
from lancedb.query import FullTextOperator as Op

from docsplit.ranking import passages as ranking
from service import executors
from service.index.documents import Index
from service.index.query.filters import Where, filtered, live
from service.index.query.passage_scores import Asked, scored
from service.index.query.reading import Query, matching, ordered
from service.index.row_cache import measured, take
from service.index.rows import checksums, sizes, vectors
from service.index.rows.checksums import Part, texts

if TYPE_CHECKING:
    from lancedb.query import AsyncVectorQuery

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
    if not vectors.searchable(index.schema):
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
        index: contains the documents.
        words: to look for.
        limit: most rows.
        where: a condition on documents.
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
        found = measured(await take(index.table, rows, sizes.COLUMNS))
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
