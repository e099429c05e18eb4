"""Citations in one index: search by them, candidates to learn from, and those that seem missing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from lancedb.expr import col, lit

from docsplit.heads.citation import CANDIDATES, SIGNALS, Candidates, sample, vector_features
from docsplit.heads.network import Scorer
from docsplit.heads.pairs import FEATURES, MOST_FIELDS, Facts, Scores, of_pairs, signals
from docsplit.ranking.references import Named, Reference, References
from docsplit.ranking.terms import bag
from docsplit.windowing.pooling import Vectors
from service import executors
from service.errors import ConflictError, DamagedError, NotFoundError
from service.index.documents import Index
from service.index.link_graph import Graph
from service.index.query import listing
from service.index.query.filters import Where
from service.index.query.listing import Head
from service.index.query.reading import Direction, Hit, Query
from service.index.query.search import candidates, first, stored
from service.index.rows import derived
from service.index.rows.checksums import texts
from service.index.rows.fields import column_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

# missing citations of one citing document
MOST_OF_ONE = 10


async def citation(
    index: Index,
    query: Query,
    limit: int,
    where: Where | None,
    head: Scorer,
    graph: Graph,
    direction: Direction | None = None,
) -> list[Hit]:
    """The hybrid candidates by the probability that one of the two documents cites the other.

    With ``direction``, only one way counts: the query cites the document, or the reverse.

    Raises:
        ConflictError: the head has other inputs than the index can give.
    """
    depth = max(CANDIDATES, limit)
    hits = list(islice(await candidates(index, query, depth, where), depth))
    if not hits:
        return []
    names = [hit.id for hit in hits]
    own = [query.id] if query.id is not None else []
    counts = await graph.cited_counts(names + own, query.id)
    popularity = np.array([counts[name] for name in names])
    here = np.full(len(hits), counts[query.id] if query.id is not None else 0)
    width = head.shape[0]
    # a head of a bundle does not know the fields of an index, which come last
    if width in (FEATURES, FEATURES + 2 * len(_fields(index))):
        about = await _of_query(index, query)
        held = await _of_hits(index, hits, words=direction != "cites")
        inputs = partial(_features, index, hits, about, held)
    elif width == 3 * query.vector.size + SIGNALS:
        inputs = partial(_vectors, query, hits)
    else:
        raise ConflictError("the citation head has other inputs than this index: train it again")
    cites, cited = np.zeros(len(hits)), np.zeros(len(hits))
    if direction != "cited_by":
        cites = head.probabilities((await inputs(popularity, "cites"))[:, :width])[:, 1]
    if direction != "cites":
        cited = head.probabilities((await inputs(here, "cited_by"))[:, :width])[:, 1]
    ranked = [
        replace(
            hit,
            score=float(max(one, two)),
            direction=direction or ("cites" if one >= two else "cited_by"),
        )
        for hit, one, two in zip(hits, cites, cited, strict=True)
    ]
    return await first(index, iter(sorted(ranked, key=lambda hit: -hit.score)), limit, query)


async def _vectors(
    query: Query, hits: Sequence[Hit], popularity: NDArray[np.int64], direction: Direction
) -> Vectors:
    """The two vectors and the signals of each pair of the query and a hit."""
    found = np.stack([hit.vector for hit in hits])
    asked = np.broadcast_to(query.vector, found.shape)
    pair = (asked, found) if direction == "cites" else (found, asked)
    return vector_features(*pair, signals(_scores(hits), popularity))


async def _features(
    index: Index,
    hits: Sequence[Hit],
    about: Facts,
    held: Sequence[Facts],
    popularity: NDArray[np.int64],
    direction: Direction,
) -> Vectors:
    """The features of each pair of the query and a hit.

    Args:
        index: contains the hits.
        hits: of a hybrid search.
        about: the query.
        held: the hits; with their words if they cite the query.
        popularity: number of other documents that cite the cited one of each pair.
        direction: of the pairs.
    """
    idf = (await index.vocabulary.frequencies(index)).idf
    return await executors.STORE.run(
        of_pairs, _scores(hits), about, held, popularity, idf, direction
    )


def _scores(hits: Sequence[Hit]) -> Scores:
    rows = [(hit.cosine, hit.words, hit.score) for hit in hits]
    return Scores(*np.reshape(rows, (-1, 3)).astype(np.float64).T)


async def examples(graph: Graph) -> tuple[list[Candidates], int, int]:
    """Candidates of citing documents, for training a head on the links of a graph.

    Returns:
        The searches that found a cited document, the number of links, and the number of citing
        documents. ``sample`` chooses the documents to search for.
    """
    index = graph.index
    links = await graph.citations()
    citing = sorted(links)
    popularity = await executors.STORE.run(_popularity, links)
    found = []
    for name in sample(citing, index.schema.field("vector").type.list_size):
        one = await search_of(index, name, links[name], popularity)
        if one is not None and one.linked.any() and not one.linked.all():
            found.append(one)
    return found, sum(popularity.values()), len(citing)


def _popularity(links: Mapping[str, set[str]]) -> dict[str, int]:
    """How many documents cite each document."""
    counts: dict[str, int] = {}
    for cited in links.values():
        for name in cited:
            counts[name] = counts.get(name, 0) + 1
    return counts


async def search_of(
    index: Index, name: str, cited: set[str], popularity: Mapping[str, int]
) -> Candidates | None:
    """The candidates of one document; None if it is damaged or there are none.

    Args:
        index: contains the documents.
        name: id of the document.
        cited: documents that it cites.
        popularity: number of documents that cite each document.
    """
    try:
        query = await stored(index, name)
    except (DamagedError, NotFoundError):
        return None
    hits = list(islice(await candidates(index, query, CANDIDATES, None), CANDIDATES))
    if not hits:
        return None
    # a document's own link would give the answer away
    others = np.array([popularity.get(hit.id, 0) - (hit.id in cited) for hit in hits])
    about = await _of_query(index, query)
    held = await _of_hits(index, hits, words=False)
    return Candidates(
        query.vector,
        np.stack([hit.vector for hit in hits]).astype(np.float32),
        signals(_scores(hits), others),
        np.array([hit.id in cited for hit in hits], dtype=np.bool_),
        await _features(index, hits, about, held, others, "cites"),
    )


# What a citation head reads of documents besides the scores of a search. It only ranks, so these
# columns are not verified.


def _fields(index: Index) -> list[str]:
    """The declared fields whose differences are features: the first few numbers, by name."""
    kinds = index.identity.fields
    return sorted(name for name in kinds if kinds[name] in ("integer", "number"))[:MOST_FIELDS]


async def _of_query(index: Index, query: Query) -> Facts:
    """The facts of a stored document or a text."""
    words = await executors.STORE.run(bag, query.text)
    unknown = Facts("", words, len(query.text), np.full(len(_fields(index)), np.nan))
    if query.id is None:
        return unknown
    found = await index.select(col("id") == lit(query.id), _columns(index), 1)
    stored = _opened(index, found).get(query.id, unknown)
    return replace(unknown, title=stored.title, values=stored.values)


async def _of_hits(index: Index, hits: Sequence[Hit], *, words: bool) -> list[Facts]:
    """The facts of found documents, with or without their words."""
    rows = [hit.row for hit in hits]
    columns = [*_columns(index), "window_ends"]
    if words and derived.TERMS in index.schema.names:
        columns.append(derived.TERMS)
    found = await index.table.take_row_ids(rows).select(columns).to_arrow()
    held = await executors.STORE.run(_opened, index, found)
    unknown = Facts("", b"", 0, np.full(len(_fields(index)), np.nan))
    return [held.get(hit.id, unknown) for hit in hits]


def _columns(index: Index) -> list[str]:
    columns = ["id", "digest", *(column_name(name) for name in _fields(index))]
    # an earlier version did not limit titles
    return [*columns, "title"] if index.identity.bounded else columns


def _opened(index: Index, found: pa.Table) -> dict[str, Facts]:
    names = [column_name(name) for name in _fields(index)]
    held = {}
    for row, name, digest in zip(
        found.drop_columns(["id", "digest"]).to_pylist(),
        texts(found["id"]),
        texts(found["digest"]),
        strict=True,
    ):
        values = [np.nan if row[field] is None else float(row[field]) for field in names]
        held[name] = Facts(
            row.get("title") or "",
            derived.opened_terms(row.get(derived.TERMS), digest) or b"",
            max(row.get("window_ends") or [0]),
            np.array(values, dtype=np.float64),
        )
    return held


@dataclass(frozen=True, slots=True)
class Missing:
    """A pair of documents without a link, though one seems to cite the other.

    Attributes:
        citing: document that seems to cite the other one.
        cited: the other one; its score is the probability.
        place: the first place in the citing text that names the other one; None if there is none.
    """

    citing: Head
    cited: Hit
    place: Reference | None


@dataclass(frozen=True, slots=True)
class MissingPage:
    """Missing citations of some documents.

    Attributes:
        citations: the likeliest first.
        documents: that were read, in the order of their ids.
        next: id of the last one; None if no document follows.
    """

    citations: list[Missing]
    documents: int
    next: str | None


async def missing(
    graph: Graph,
    head: Scorer,
    counted: Graph,
    after: str,
    documents: int,
    threshold: float,
    until: float,
) -> MissingPage:
    """Missing citations of the documents whose ids follow ``after``.

    Each document costs one search for citations, and leaves out what it cites already.

    Args:
        graph: whose links are not missing.
        head: of the index.
        counted: graph from which the head learnt.
        after: an id, or "" for the first page.
        documents: to read at most.
        threshold: lowest probability.
        until: begin no further document after this time on ``time.monotonic``'s clock.

    Raises:
        ConflictError: the head has other inputs than the index can give.
    """
    part = await listing.page(graph.index, after, documents)
    found: list[Missing] = []
    read = 0
    for one in part.heads:
        if read and time.monotonic() > until:
            break
        read += 1
        found += await _of_document(graph, head, counted, one, threshold)
    found.sort(key=lambda pair: (-pair.cited.score, pair.citing.id, pair.cited.id))
    if read < len(part.heads):
        return MissingPage(found, read, part.heads[read - 1].id)
    return MissingPage(found, read, part.next)


async def _of_document(
    graph: Graph, head: Scorer, counted: Graph, citing: Head, threshold: float
) -> list[Missing]:
    index: Index = graph.index
    try:
        query = await stored(index, citing.id)
        cited = await graph.cites(citing.id)
    except (DamagedError, NotFoundError):
        return []
    query = replace(query, exclude=cited)
    hits = await citation(index, query, MOST_OF_ONE, None, head, counted, "cites")
    hits = [hit for hit in hits if hit.score >= threshold]
    if not hits:
        return []
    places = await executors.STORE.run(_places, query.text, citing.id, hits)
    return [Missing(citing, hit, places.get(place)) for place, hit in enumerate(hits)]


def _places(text: str, citing: str, hits: Sequence[Hit]) -> dict[int, Reference]:
    """The first reference to each document, by its position among the hits."""
    references, _ = References([Named(hit.id, hit.title or "") for hit in hits]).find(text, citing)
    return {reference.cited: reference for reference in reversed(references)}
