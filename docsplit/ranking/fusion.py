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
