"""Finds the windows of two documents that are most similar."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.index.rows.record import Windows


@dataclass(frozen=True, slots=True)
class Pair:
    """Two windows, by number, and their cosine."""

    query: int
    document: int
    cosine: float


def best(query: Windows, document: Windows, most: int) -> list[Pair]:
    """The closest pairs, highest first; each window occurs in at most one pair."""
    cosines = query.vectors @ document.vectors.T
    pairs = []
    for _ in range(min(most, *cosines.shape)):
        row, column = np.unravel_index(int(cosines.argmax()), cosines.shape)
        pairs.append(Pair(int(row), int(column), float(min(cosines[row, column], 1.0))))
        cosines[row, :] = -np.inf
        cosines[:, column] = -np.inf
    return pairs
