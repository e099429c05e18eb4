"""Geometry of sets of vectors."""

from typing import Any

import numpy as np
import numpy.typing as npt

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
