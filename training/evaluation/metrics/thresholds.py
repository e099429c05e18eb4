"""Separate two kinds of pairs by a threshold."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Right = npt.NDArray[np.bool_]


def best_threshold(positive: Floats, negative: Floats) -> float:
    """The threshold that classifies the most pairs correctly; the middle one among equals.

    Args:
        positive: scores that should reach the threshold.
        negative: scores that should stay below.
    """
    values = np.unique(np.concatenate([positive, negative]))
    candidates = np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2, [values[-1] + 1]])
    above = len(positive) - np.searchsorted(np.sort(positive), candidates, side="left")
    below = np.searchsorted(np.sort(negative), candidates, side="left")
    hits = above + below
    best = np.flatnonzero(hits == hits.max())
    return float(candidates[best[len(best) // 2]])


def right_sides(positive: Floats, negative: Floats, threshold: float) -> Right:
    """Whether each score is on the correct side of a threshold, the positive ones first."""
    return np.concatenate([positive >= threshold, negative < threshold])


def two_fold(positive: Floats, negative: Floats) -> Right:
    """Whether a threshold that is fitted on the other half of the pairs classifies a pair right.

    Args:
        positive, negative: scores of equally many pairs, two or more each. Row i of both
            belongs to the same half.

    Returns:
        bool ``[2 * pairs]``, the positive ones first.
    """
    even = np.arange(len(positive)) % 2 == 0
    right = np.zeros((2, len(positive)), dtype=bool)
    for fit, test in ((even, ~even), (~even, even)):
        threshold = best_threshold(positive[fit], negative[fit])
        right[:, test] = right_sides(positive[test], negative[test], threshold).reshape(2, -1)
    return right.ravel()
