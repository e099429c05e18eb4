"""Combines rankings into one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Id = TypeVar("Id", bound=Hashable)

# the constant of Cormack, Clarke and Büttcher 2009
RRF = 60
# the score of a document that is first in both rankings
BEST = 2 / (RRF + 1)
# the share of the vectors in a hybrid score, and in that for a short query
DENSE, DENSE_SHORT = 0.3, 0.6
# least depth of a search for words that are then compared exactly
DEEP = 200


def fuse(*rankings: Sequence[Id]) -> dict[Id, float]:
    """Reciprocal rank fusion: the sum of 1 / (60 + rank) over the rankings, highest first."""
    scores: dict[Id, float] = {}
    for ranking in rankings:
        for rank, name in enumerate(ranking, start=1):
            scores[name] = scores.get(name, 0.0) + 1 / (RRF + rank)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def shares(ids: Sequence[Id], scores: Sequence[float]) -> dict[Id, float]:
    """Scores in descending order as shares of their span: 1 for the best, 0 for the last."""
    if not scores:
        return {}
    span = max(scores[0] - scores[-1], 1e-9)
    return {name: (score - scores[-1]) / span for name, score in zip(ids, scores, strict=True)}


def standard(scores: NDArray[np.float64], least: int = 1) -> NDArray[np.float64]:
    """Scores with mean 0 and standard deviation 1, as if zeros made them at least so many."""
    size = max(least, scores.size)
    mean = scores.sum() / size
    deviation = max(float((scores**2).sum() / size - mean**2), 0.0) ** 0.5
    found: NDArray[np.float64] = (scores - mean) / max(deviation, 1e-9)
    return found


def hybrid(
    dense: NDArray[np.float64], words: NDArray[np.float64], *, brief: bool = False
) -> NDArray[np.float64]:
    """The hybrid score: a weighted mean of two standard scores.

    Args:
        dense: the vectors' cosines.
        words: the words' cosines, whose long tail the root shortens; BM25 for a short query.
        brief: whether the query is short.
    """
    if brief:
        # a word that one of five documents has says as much as one that one of many has
        return DENSE_SHORT * standard(dense) + (1 - DENSE_SHORT) * standard(words, DEEP)
    return DENSE * standard(dense) + (1 - DENSE) * standard(np.sqrt(words))


def diverse(
    scores: NDArray[np.float64], vectors: NDArray[np.float32], count: int, diversity: float
) -> list[int]:
    """Positions of the hits to show, in their order; the best one comes first.

    The next hit is the one with the highest (1 - diversity) * relevance - diversity * redundancy.
    Relevance is its score, scaled to 0 for the lowest and 1 for the highest. Redundancy follows
    from its highest cosine to a hit before it: 0 up to the mean cosine of all pairs of hits, 1 for
    the same vector, linear between. So both parts span the same range in every mode.

    Args:
        scores: of the hits, ``[hits]``.
        vectors: unit vectors of the hits, float32 ``[hits, dimensions]``.
        count: most positions to return.
        diversity: share of the redundancy, 0 to 1; 0 keeps the order of the scores.
    """
    hits = len(scores)
    if hits < 2:
        return list(range(min(hits, count)))
    span = float(scores.max() - scores.min()) or 1.0
    relevance = (1 - diversity) * (scores - scores.min()) / span
    cosines = vectors @ vectors.T
    mean = min(float((cosines.sum() - np.trace(cosines)) / (hits * (hits - 1))), 1 - 1e-6)
    redundancy = diversity * np.clip((cosines - mean) / (1 - mean), 0, 1)
    worst = np.zeros(hits)
    free = np.ones(hits, dtype=bool)
    chosen: list[int] = []
    for _ in range(min(count, hits)):
        place = int(np.argmax(np.where(free, relevance - worst, -np.inf)))
        chosen.append(place)
        free[place] = False
        np.maximum(worst, redundancy[place], out=worst)
    return chosen
