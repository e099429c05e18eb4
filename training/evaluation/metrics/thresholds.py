"""Separate two kinds of pairs by a threshold."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


def best_threshold(positive: Floats, negative: Floats) -> float:
    """The threshold that classifies the most pairs correctly; the middle one among equals.

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
    """Share of the scores on the correct side of a threshold."""
    right = (positive >= threshold).sum() + (negative < threshold).sum()
    return float(right / (len(positive) + len(negative)))


def two_fold_accuracy(positive: Floats, negative: Floats) -> float:
    """Twofold cross-validated accuracy of a threshold: fitted on one half, measured on the other.

    Args:
        positive, negative: scores of equally many pairs, two or more each. Row i of both
            belongs to the same half.
    """
    even = np.arange(len(positive)) % 2 == 0
    right = 0.0
    for fit, test in ((even, ~even), (~even, even)):
        threshold = best_threshold(positive[fit], negative[fit])
        right += threshold_accuracy(positive[test], negative[test], threshold) * float(test.mean())
    return right
