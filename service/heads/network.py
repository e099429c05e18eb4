"""A trained head: plain matrices, so that serving it takes numpy alone."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.documents.pooling import Vectors

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Network:
    """A multi-layer perceptron with ReLU between its layers.

    Attributes:
        weights: float32 ``[inputs, outputs]`` a layer.
        biases: float32 ``[outputs]`` a layer.
        temperature: divides the logits before the softmax (Guo et al. 2017).
    """

    weights: tuple[Vectors, ...]
    biases: tuple[Vectors, ...]
    temperature: float = 1.0

    def logits(self, inputs: Vectors) -> Vectors:
        """``[rows, inputs]`` to ``[rows, outputs]``."""
        hidden = inputs
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer:
                hidden = np.maximum(hidden, 0)
            hidden = hidden @ weight + bias
        return hidden

    def probabilities(self, inputs: Vectors) -> Floats:
        """Calibrated, ``[rows, outputs]``, rows sum to 1."""
        return softmax(self.logits(inputs), self.temperature)

    def to_bytes(self) -> bytes:
        """An ``.npz`` archive."""
        arrays = {f"weight{i}": w for i, w in enumerate(self.weights)}
        arrays |= {f"bias{i}": b for i, b in enumerate(self.biases)}
        stream = io.BytesIO()
        np.savez(stream, temperature=np.float64(self.temperature), **arrays)  # type: ignore[arg-type]
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, blob: bytes) -> Network:
        """What ``to_bytes`` wrote."""
        with np.load(io.BytesIO(blob), allow_pickle=False) as held:
            layers = range(sum(name.startswith("weight") for name in held.files))
            return cls(
                tuple(held[f"weight{i}"] for i in layers),
                tuple(held[f"bias{i}"] for i in layers),
                float(held["temperature"]),
            )


def softmax(logits: Vectors, temperature: float = 1.0) -> Floats:
    """Rows of ``logits / temperature`` as probabilities."""
    wide = logits.astype(np.float64) / temperature
    wide = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return np.asarray(wide / wide.sum(axis=-1, keepdims=True), dtype=np.float64)
