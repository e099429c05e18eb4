"""Measures, as functions of vectors, scores or labels."""

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import accuracy_score, f1_score

# Measures of predicted classes.

Labels = npt.NDArray[np.int64]


def accuracy(truth: Labels, predicted: Labels) -> float:
    """Share of correct predictions."""
    return float(accuracy_score(truth, predicted))


def macro_f1(truth: Labels, predicted: Labels) -> float:
    """Mean of F1 over the classes that are true or predicted somewhere."""
    return float(f1_score(truth, predicted, average="macro", zero_division=0))


Floats = npt.NDArray[np.floating]


def mean_cosine(vectors: Floats) -> float:
    """Mean cosine of all pairs of rows: the anisotropy of Ethayarajh 2019, section 4.1.

    Args:
        vectors: unit vectors ``[rows, dimensions]``, two or more.
    """
    count = len(vectors)
    total = vectors.sum(axis=0, dtype=np.float64)
    squares = float((vectors.astype(np.float64) ** 2).sum())
    return float((total @ total - squares) / (count * (count - 1)))


def partition_isotropy(vectors: Floats) -> float:
    """``min Z(c) / max Z(c)`` over the eigenvectors c of ``VᵀV`` and their opposites.

    ``Z(c)`` is the sum of ``exp(c·v)`` over the rows v (Mu & Viswanath 2018, eq. 7 and 8). The
    paper uses only the eigenvectors, whose sign is arbitrary. 1 is isotropic.
    """
    wide = vectors.astype(np.float64)
    _, directions = np.linalg.eigh(wide.T @ wide)
    products = wide @ directions
    partition = np.concatenate([np.exp(products).sum(0), np.exp(-products).sum(0)])
    return float(partition.min() / partition.max())


def alignment(first: Floats, second: Floats) -> float:
    """Mean squared distance of the rows of positive pairs (Wang & Isola 2020, eq. 1, alpha 2)."""
    difference = first.astype(np.float64) - second.astype(np.float64)
    return float((difference**2).sum(axis=1).mean())


def uniformity(vectors: Floats) -> float:
    """Logarithm of the mean Gaussian potential of all pairs (Wang & Isola 2020, eq. 2, t 2).

    0 if all rows are equal. Lower values mean that rows cover the sphere more evenly.
    """
    wide = vectors.astype(np.float64)
    squared = 2 - 2 * (wide @ wide.T)[np.triu_indices(len(wide), 1)]
    return float(np.log(np.exp(-2 * np.maximum(squared, 0)).mean()))


def row_cosines(first: Any, second: Any) -> npt.NDArray[np.float64]:
    """Cosine of row i of one matrix and row i of the other; unit rows, dense or sparse."""
    if isinstance(first, np.ndarray):
        product = first.astype(np.float64) * second.astype(np.float64)
        return np.asarray(product.sum(axis=1))
    return np.asarray(first.multiply(second).sum(axis=1), dtype=np.float64).ravel()


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


_RESAMPLES = 2_000
_AT_ONCE = 2**18


def difference_interval(
    before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """95 % interval of the mean paired difference, by bootstrap over the queries."""
    return middle_95(resampled_means(after - before, _RESAMPLES))


def resampled_means(
    values: npt.NDArray[np.float64], resamples: int, seed: int = 0
) -> npt.NDArray[np.float64]:
    """Means of draws with replacement, each of as many values as there are, ``[resamples]``."""
    rng = np.random.default_rng(seed)
    count = len(values)
    # a few resamples at once, so that memory is bounded and the caches of the processor suffice
    rows = max(1, _AT_ONCE // count)
    sizes = [min(rows, resamples - first) for first in range(0, resamples, rows)]
    return np.concatenate([values[rng.integers(count, size=(n, count))].mean(1) for n in sizes])


def middle_95(means: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The interval that holds the middle 95 % of the values."""
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
