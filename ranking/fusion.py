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


def standard(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores with mean 0 and standard deviation 1; 0 everywhere if all are the same."""
    if not scores.size:
        return scores
    found: NDArray[np.float64] = (scores - scores.mean()) / max(float(scores.std()), 1e-9)
    return found
