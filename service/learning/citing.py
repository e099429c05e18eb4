"""Search in one index by citations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from heads.citation import (
    CANDIDATES,
    SIGNALS,
    Candidates,
    sample,
    signals,
    vector_features,
)
from heads.network import Floats, Scorer
from heads.pair_features import FEATURES, Pairs, features
from ranking.bags import title_in, titles_in
from ranking.fusion import fuse, shares
from service import executors
from service.errors import ConflictError, DamagedError, NotFoundError
from service.index.documents import Index
from service.index.query.filters import Where
from service.index.query.links import citations, cited_counts
from service.index.query.search import Direction, Hit, Query, candidates, first, stored
from service.learning import facts
from service.learning.facts import Facts
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

    Raises:
        ConflictError: the head has other inputs than the index can give.
    """
    depth = max(CANDIDATES, limit)
    hits = list(islice(await candidates(index, query, depth, where), depth))
    if not hits:
        return []
    names = [hit.id for hit in hits]
    own = [query.id] if query.id is not None else []
    counts = await cited_counts(index, names + own, query.id)
    popularity = np.array([counts[name] for name in names])
    here = np.full(len(hits), counts[query.id] if query.id is not None else 0)
    if head.shape[0] == FEATURES + 2 * len(facts.fields(index)):
        about = await facts.of_query(index, query)
        held = await facts.of_hits(index, hits, words=direction != "cites")
        inputs = partial(_features, index, hits, about, held)
    elif head.shape[0] == 3 * query.vector.size + SIGNALS:
        inputs = partial(_vectors, query, hits)
    else:
        raise ConflictError("the citation head has other inputs than this index: train it again")
    cites, cited = np.zeros(len(hits)), np.zeros(len(hits))
    if direction != "cited_by":
        cites = head.probabilities(await inputs(popularity, "cites"))[:, 1]
    if direction != "cites":
        cited = head.probabilities(await inputs(here, "cited_by"))[:, 1]
    ranked = [
        replace(
            hit,
            score=float(max(one, two)),
            direction=direction or ("cites" if one >= two else "cited_by"),
        )
        for hit, one, two in zip(hits, cites, cited, strict=True)
    ]
    return await first(index, iter(sorted(ranked, key=lambda hit: -hit.score)), limit, query.offset)


async def _vectors(
    query: Query, hits: Sequence[Hit], popularity: NDArray[np.int64], direction: Direction
) -> Vectors:
    """The two vectors and the signals of each pair of the query and a hit."""
    found = np.stack([hit.vector for hit in hits])
    asked = np.broadcast_to(query.vector, found.shape)
    pair = (asked, found) if direction == "cites" else (found, asked)
    return vector_features(*pair, _signals(hits, popularity))


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
    own = np.full(len(hits), float(about.length))
    lengths = np.array([one.length for one in held], dtype=np.float64)
    differences = about.values - np.stack([one.values for one in held])
    if direction == "cites":
        titles = [one.title for one in held]
        title = await executors.STORE.run(titles_in, titles, about.words, idf)
    else:
        bags = [one.words for one in held]
        title = await executors.STORE.run(title_in, about.title, bags, idf)
        own, lengths, differences = lengths, own, -differences
    cosines, words, fused = _scores(hits)
    return features(Pairs(cosines, words, fused, popularity, title, own, lengths, differences))


def _signals(hits: Sequence[Hit], popularity: NDArray[np.int64]) -> Vectors:
    cosines, words, _ = _scores(hits)
    by_cosine, by_words = (np.argsort(-one, kind="stable").tolist() for one in (cosines, words))
    fused, share = fuse(by_cosine, by_words), shares(by_words, words[by_words].tolist())
    places = range(len(hits))
    return signals(
        cosines,
        np.array([share[place] for place in places]),
        np.array([fused[place] for place in places]),
        popularity,
    )


def _scores(hits: Sequence[Hit]) -> tuple[Floats, Floats, Floats]:
    rows = [(hit.cosine, hit.words, hit.score) for hit in hits]
    cosines, words, fused = np.reshape(rows, (-1, 3)).astype(np.float64).T
    return cosines, words, fused


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
        one = await search_of(index, name, links[name], popularity)
        if one is not None and one.linked.any() and not one.linked.all():
            found.append(one)
    return found, sum(map(len, links.values())), len(citing)


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
        _signals(hits, others),
        np.array([hit.id in cited for hit in hits], dtype=np.bool_),
        await _features(index, hits, about, held, others, "cites"),
    )
