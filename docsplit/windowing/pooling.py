"""From window vectors to document vectors."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

# said of a text with such a vector: static embeddings may have no row for any of its words
UNKNOWN = "has a vector of zeros: the model knows none of its words"


def pool(windows: Vectors, weights: Sequence[float]) -> Vectors:
    """Weighted mean of window vectors, not renormalised.

    Args:
        windows: unit vectors, float32 ``[windows, dimensions]``.
        weights: of the windows, as ``docsplit.windowing.windows`` gives them.

    Returns:
        float32 ``[dimensions]``. Its length is 1 if all windows agree, and falls as they differ.
    """
    if len(windows) == 1:
        return np.asarray(windows[0])
    shares = np.array(weights, dtype=np.float64)
    shares /= shares.sum()
    return np.asarray(shares @ windows.astype(np.float64), dtype=np.float32)


def normalise(vectors: Vectors) -> Vectors:
    """Rows scaled to unit length; a zero row stays zero."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def shorten(vectors: Vectors, dimensions: int) -> Vectors:
    """The first components of each row, scaled to unit length (Matryoshka, Kusupati et al. 2022).

    Args:
        vectors: ``[rows, wide]``.
        dimensions: components to keep.
    """
    return normalise(vectors[:, :dimensions])
