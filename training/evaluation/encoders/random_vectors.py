"""The control without knowledge: a random direction for each text."""

import hashlib
from collections.abc import Sequence

import numpy as np

from training.evaluation.encoders.interface import Reading, Vectors


class RandomVectors:
    """Uniformly random directions, equal for equal texts, nearly orthogonal for different ones."""

    name = "random"
    kind = "control"

    def __init__(self, dimensions: int = 384) -> None:
        self._dimensions = dimensions
        self.revision = f"random-{dimensions}"
        self.details = {"dimensions": str(dimensions)}

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``; ``reading`` has no effect."""
        del reading
        rows = np.stack([self._row(text) for text in texts])
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)

    def _row(self, text: str) -> np.ndarray:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        draw = np.random.default_rng(int.from_bytes(digest[:16]))
        return draw.standard_normal(self._dimensions)
