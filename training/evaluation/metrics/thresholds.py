"""Telling two kinds of pairs apart by a threshold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


def best_threshold(positive: Floats, negative: Floats) -> float:
    """The threshold on a score that classifies most pairs rightly; the middle one of several.

    Args:
        positive: scores that should reach the threshold.
        negative: scores that should stay below.
    """
    values = np.sort(np.concatenate([positive, negative]))
    candidates = np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2, [values[-1] + 1]])
    above = len(positive) - np.searchsorted(np.sort(positive), candidates, side="left")
    below = np.searchsorted(np.sort(negative), candidates, side="left")
    hits = above + below
    best = np.flatnonzero(hits == hits.max())
    return float(candidates[best[len(best) // 2]])


def threshold_accuracy(positive: Floats, negative: Floats, threshold: float) -> float:
    """Share of the scores on their side of a threshold."""
    right = (positive >= threshold).sum() + (negative < threshold).sum()
    return float(right / (len(positive) + len(negative)))
