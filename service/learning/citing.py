"""Search in one index by citations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from docsplit.heads.citation import CANDIDATES, SIGNALS, Candidates, sample, vector_features
from docsplit.heads.network import Scorer
from docsplit.heads.pairs import FEATURES, Facts, Scores, of_pairs, signals
from docsplit.windowing.pooling import Vectors
from service import executors
from service.errors import ConflictError, DamagedError, NotFoundError
from service.index.documents import Index
from service.index.link_graph import Graph
from service.index.query.filters import Where
from service.index.query.reading import Direction, Hit, Query
from service.index.query.search import candidates, first, stored
from service.learning import facts

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    if width in (FEATURES, FEATURES + 2 * len(facts.fields(index))):
        about = await facts.of_query(index, query)
        held = await facts.of_hits(index, hits, words=direction != "cites")
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
    about = await facts.of_query(index, query)
    held = await facts.of_hits(index, hits, words=False)
    return Candidates(
        query.vector,
        np.stack([hit.vector for hit in hits]).astype(np.float32),
        signals(_scores(hits), others),
        np.array([hit.id in cited for hit in hits], dtype=np.bool_),
        await _features(index, hits, about, held, others, "cites"),
    )
