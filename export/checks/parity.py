"""Compare a graph's vectors with those of the checkpoint."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bundles.manifest import Parity, PrecisionName
from export.errors import ExportError

# fp16 only rounds. int8 also moves paragraphs whose distances are almost equal, so the nearest
# neighbour changes more often than the cosine suggests.
THRESHOLDS: Mapping[PrecisionName, Mapping[str, float]] = {
    "fp16": {"cosine_mean": 0.9999, "cosine_min": 0.9999, "neighbour_agreement": 0.99},
    "packed": {"cosine_mean": 0.9999, "cosine_min": 0.9999, "neighbour_agreement": 0.99},
    "int8": {"cosine_mean": 0.995, "cosine_min": 0.985, "neighbour_agreement": 0.85},
}


def measure(
    precision: PrecisionName, vectors: np.ndarray, reference: np.ndarray, *, engine: str
) -> Parity:
    """Compare unit vectors, float32 ``[paragraphs, dimensions]``, with those of the fp32 source.

    Raises:
        ExportError: a figure is below its threshold, or a vector is not finite or not of
            length 1.
    """
    if vectors.shape != reference.shape:
        raise ExportError(
            f"{precision}: the vectors have shape {vectors.shape}, the source's {reference.shape}"
        )
    for side, given in (("the source", reference), ("the graph", vectors)):
        if not np.isfinite(given).all():
            raise ExportError(f"{precision}: {side} gives values that are not finite")
    lengths = np.linalg.norm(vectors, axis=1)
    if np.abs(lengths - 1).max() > 1e-3:
        raise ExportError(f"{precision}: a vector has length {lengths.min():.4f}, not 1")
    limits = dict(THRESHOLDS[precision])
    figures: dict[str, Any] = {**compare(vectors, reference)}
    parity = Parity(paragraphs=len(vectors), **figures, engine=engine, thresholds=limits)
    short = [
        f"{name} {value:.6f} is below {limit}"
        for name, limit in limits.items()
        if not (value := float(getattr(parity, name))) >= limit
    ]
    if short:
        raise ExportError(
            f"{precision} is too far from the source on {parity.paragraphs} paragraphs: "
            + "; ".join(short)
        )
    return parity


def compare(vectors: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """The gate's figures, by the names in ``THRESHOLDS``: mean and lowest cosine of unit vectors
    float32 ``[paragraphs, dimensions]`` to the source's, and the share of paragraphs whose nearest
    other one is the same."""
    cosines = (vectors.astype(np.float64) * reference).sum(axis=1)
    return {
        "cosine_mean": _rounded(cosines.mean()),
        "cosine_min": _rounded(cosines.min()),
        "neighbour_agreement": _rounded((_nearest(vectors) == _nearest(reference)).mean()),
    }


def _nearest(vectors: np.ndarray) -> np.ndarray:
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    nearest: np.ndarray = similarity.argmax(axis=1)
    return nearest


def _rounded(value: np.floating) -> float:
    return round(float(value), 7)
