"""Hits that resemble each other less: maximal marginal relevance (Carbonell & Goldstein 1998)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
