"""Fits the map and measures it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ortho_group

from training.evaluation.citations import difference_interval

Floats = NDArray[np.float32]
# unit vectors of the first and second halves of documents, [documents, dimensions] each
Pair = tuple[Floats, Floats]


def fit(corpora: Sequence[Pair], power: float, ridge: float) -> Floats:
    """The map W of ``v → v @ W``, symmetric, float32 ``[dimensions, dimensions]``.

    Within-class covariance normalisation (Hatch et al. 2006, "Within-class covariance normalization
    for SVM-based speaker recognition"): a document is the class, and its halves are the samples.
    W = (S / s + ridge · I) ^ -power, where S is the covariance of the differences between halves
    and s is its mean eigenvalue. Directions in which the halves of a document differ count less.
    DocSplit pulls the halves together too, by gradient steps.

    Args:
        corpora: every corpus counts the same, whatever its number of documents.
        power: 0 changes nothing, 0.5 whitens.
        ridge: the larger, the less the map changes.
    """
    dimensions = corpora[0][0].shape[1]
    covariance = np.zeros((dimensions, dimensions))
    for first, second in corpora:
        differences = (first - second).astype(np.float64)
        covariance += differences.T @ differences / len(differences)
    values, directions = np.linalg.eigh(covariance)
    scales = (np.maximum(values, 0) / values.mean() + ridge) ** -power
    # vectors of length 1 stay near 1
    scales /= scales.mean()
    weights: Floats = ((directions * scales) @ directions.T).astype(np.float32)
    return weights


def reduced(
    corpora: Sequence[Pair],
    weights: Floats,
    dimensions: int,
    rotation: np.random.Generator | None = None,
) -> Floats:
    """A map that also keeps only the principal components of what ``weights`` gives.

    The components are those of the second moments of unit vectors, not of their covariance:
    cosines compare directions from the origin. In falling order, shorter prefixes of the vectors
    are good vectors too, but the first components hold most of the variance. Adam scales each
    dimension by itself, so a classifier that it trains on few such vectors does worse. A rotation
    spreads the variance and changes no cosine.

    Args:
        corpora: every corpus counts the same, whatever its number of documents.
        weights: float32 ``[inputs, outputs]``.
        dimensions: components to keep, at most ``outputs``.
        rotation: draws the rotation; None leaves the components in falling order.

    Returns:
        float32 ``[inputs, dimensions]``.
    """
    moments = np.zeros((weights.shape[1], weights.shape[1]))
    for pair in corpora:
        mapped = _unit(np.concatenate(pair) @ weights).astype(np.float64)
        moments += mapped.T @ mapped / len(mapped)
    _, directions = np.linalg.eigh(moments)
    kept = weights @ directions[:, ::-1][:, :dimensions]
    if rotation is not None:
        kept = kept @ ortho_group.rvs(dimensions, random_state=rotation)
    mapped_to: Floats = kept.astype(np.float32)
    return mapped_to


@dataclass(frozen=True)
class Gain:
    """How first halves find their second halves among those of all held-out documents.

    Attributes:
        documents: held-out documents.
        before, after: mean reciprocal rank without and with the map.
        interval: 95 % bootstrap interval of the difference.
    """

    documents: int
    before: float
    after: float
    interval: tuple[float, float]


def measure(held_out: Pair, weights: Floats) -> Gain:
    """The gain of a map on documents that did not fit it."""
    before = _reciprocal_ranks(*held_out)
    first, second = (_unit(half @ weights) for half in held_out)
    after = _reciprocal_ranks(first, second)
    interval = difference_interval(before, after)
    return Gain(len(before), float(before.mean()), float(after.mean()), interval)


def _reciprocal_ranks(first: Floats, second: Floats) -> NDArray[np.float64]:
    scores = first @ second.T
    own = scores.diagonal()[:, None]
    ranks: NDArray[np.float64] = 1.0 / (scores >= own).sum(1)
    return ranks


def _unit(vectors: Floats) -> Floats:
    scaled: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled
