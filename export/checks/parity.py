"""Compare a graph's vectors with those of the checkpoint."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit

from docsplit.bundles.manifest import Parity, PrecisionName
from export.checks.finite import check_values
from export.checks.thresholds import floors
from export.errors import ExportError


def measure(
    precision: PrecisionName,
    vectors: np.ndarray,
    reference: np.ndarray,
    *,
    engine: str,
    thresholds: Mapping[str, float] | None = None,
) -> Parity:
    """Compare unit vectors, float32 ``[paragraphs, dimensions]``, with those of the fp32 source.

    The result may miss ``thresholds``, by default those of ``precision``.

    Raises:
        ExportError: a vector is not finite or not of length 1.
    """
    if vectors.shape != reference.shape:
        raise ExportError(
            f"{precision}: the vectors have shape {vectors.shape}, the source's {reference.shape}"
        )
    check_values(precision, {"the source": reference, "the graph": vectors})
    lengths = np.linalg.norm(vectors, axis=1)
    if np.abs(lengths - 1).max() > 1e-3:
        raise ExportError(f"{precision}: a vector has length {lengths.min():.4f}, not 1")
    figures: dict[str, Any] = {**compare(vectors, reference)}
    limits = floors(precision) if thresholds is None else thresholds
    return Parity(paragraphs=len(vectors), **figures, engine=engine, thresholds=dict(limits))


def compare(vectors: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """The gate's figures, by the names of their thresholds: mean and lowest cosine of unit vectors
    float32 ``[paragraphs, dimensions]`` to the source's, and the share of paragraphs whose nearest
    other one is the same."""
    each = cosines(vectors, reference)
    return {
        "cosine_mean": _rounded(each.mean()),
        "cosine_min": _rounded(each.min()),
        "neighbour_agreement": _rounded((_nearest(vectors) == _nearest(reference)).mean()),
    }


def cosines(vectors: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Cosines of unit vectors, row by row, float64 ``[paragraphs]``."""
    found: np.ndarray = (vectors.astype(np.float64) * reference).sum(axis=1)
    return found


def distance(outputs: np.ndarray, exact: np.ndarray) -> float:
    """How far a graph's outputs are from the exact ones, mean of the texts.

    For unit vectors it is 1 - cosine. For the outputs of a re-ranker, float ``[pairs, 1]``, it is
    the absolute difference of the scores.
    """
    if exact.shape[1] == 1:
        return float(np.abs(score(outputs) - score(exact)).mean())
    return float(1 - (outputs * exact).sum(axis=1).mean())


def score(logits: np.ndarray) -> np.ndarray:
    """The scores of a re-ranker's outputs, from 0 to 1: their logistic function, in float64."""
    found: np.ndarray = expit(logits.astype(np.float64))
    return found


def _nearest(vectors: np.ndarray) -> np.ndarray:
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    nearest: np.ndarray = similarity.argmax(axis=1)
    return nearest


def _rounded(value: np.floating) -> float:
    return round(float(value), 7)
