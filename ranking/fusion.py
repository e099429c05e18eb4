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


def mean_standard(*scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of several scores of the same documents, each as a standard score.

    A standard score has mean 0 and standard deviation 1 over the documents; it is 0 everywhere if
    all documents have the same score.
    """
    standard = [(one - one.mean()) / max(float(one.std()), 1e-9) for one in scores if one.size]
    return np.mean(standard, axis=0) if standard else np.zeros(0)
