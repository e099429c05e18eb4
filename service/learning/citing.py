"""Search in one index by citations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from heads.citation import CANDIDATES, Candidates, probabilities, sample, signals
from heads.network import Scorer
from service.errors import DamagedError, NotFoundError
from service.index.documents import Index
from service.index.query.filters import Where
from service.index.query.links import citations, cited_counts
from service.index.query.search import Direction, Hit, Query, candidates, first, stored
from windowing.pooling import Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray


async def citation(
    index: Index,
    query: Query,
    limit: int,
    where: Where | None,
    head: Scorer,
    direction: Direction | None = None,
) -> list[Hit]:
    """The hybrid candidates by the probability that one of the two documents cites the other.

    With ``direction``, only one way counts: the query cites the document, or the reverse.
    """
    depth = max(CANDIDATES, limit)
    hits = list(islice(await candidates(index, query, depth, where), depth))
    if not hits:
        return []
    names = [hit.id for hit in hits]
    own = [query.id] if query.id is not None else []
    counts = await cited_counts(index, names + own, query.id)
    popularity = np.array([counts[name] for name in names])
    found = np.stack([hit.vector for hit in hits])
    asked = np.broadcast_to(query.vector, found.shape)
    cites, cited = np.zeros(len(hits)), np.zeros(len(hits))
    if direction != "cited_by":
        cites = probabilities(head, asked, found, _signals(hits, popularity))
    if direction != "cites":
        here = np.full(len(hits), counts[query.id] if query.id is not None else 0)
        cited = probabilities(head, found, asked, _signals(hits, here))
    ranked = [
        replace(
            hit,
            score=float(max(one, two)),
            direction=direction or ("cites" if one >= two else "cited_by"),
        )
        for hit, one, two in zip(hits, cites, cited, strict=True)
    ]
    return await first(index, iter(sorted(ranked, key=lambda hit: -hit.score)), limit, query.offset)


def _signals(hits: Sequence[Hit], popularity: NDArray[np.int64]) -> Vectors:
    rows = [(hit.cosine, hit.words, hit.score) for hit in hits]
    cosines, shares, fused = np.reshape(rows, (-1, 3)).astype(np.float64).T
    return signals(cosines, shares, fused, popularity)


async def examples(index: Index) -> tuple[list[Candidates], int, int]:
    """Candidates of citing documents, for training a head.

    Returns:
        The searches that found a cited document, the number of links, and the number of citing
        documents. ``sample`` chooses the documents to search for.
    """
    links = await citations(index)
    citing = sorted(links)
    popularity: dict[str, int] = {}
    for cited in links.values():
        for name in cited:
            popularity[name] = popularity.get(name, 0) + 1
    found = []
    for name in sample(citing, index.schema.field("vector").type.list_size):
        one = await _candidates(index, name, links[name], popularity)
        if one is not None and one.linked.any() and not one.linked.all():
            found.append(one)
    return found, sum(map(len, links.values())), len(citing)


async def _candidates(
    index: Index, name: str, cited: set[str], popularity: dict[str, int]
) -> Candidates | None:
    try:
        query = await stored(index, name)
    except (DamagedError, NotFoundError):
        return None
    hits = list(islice(await candidates(index, query, CANDIDATES, None), CANDIDATES))
    # a document's own link would give the answer away
    others = np.array([popularity.get(hit.id, 0) - (hit.id in cited) for hit in hits])
    return Candidates(
        query.vector,
        np.reshape([hit.vector for hit in hits], (-1, query.vector.size)).astype(np.float32),
        _signals(hits, others),
        np.array([hit.id in cited for hit in hits], dtype=np.bool_),
    )
