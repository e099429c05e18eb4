"""A trained head as plain matrices, so that serving it needs only numpy."""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Floats = NDArray[np.float64]
Kind = Literal["softmax", "sigmoid"]


class Scorer(Protocol):
    """A head that can compute scores."""

    @property
    def kind(self) -> Kind:
        """``softmax`` if exactly one output applies, ``sigmoid`` if each is independent."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of inputs and outputs."""

    def logits(self, inputs: Vectors) -> Vectors:
        """``[rows, inputs]`` to ``[rows, outputs]``."""

    def probabilities(self, inputs: Vectors) -> Floats:
        """Calibrated, ``[rows, outputs]``."""

    def to_bytes(self) -> bytes:
        """The head as the bytes of a file."""


@dataclass(frozen=True, slots=True)
class Network:
    """A multi-layer perceptron with ReLU between its layers.

    Attributes:
        weights: float32 ``[inputs, outputs]`` a layer.
        biases: float32 ``[outputs]`` a layer.
        temperature: divides the logits before the softmax or sigmoid (Guo et al. 2017).
        kind: ``softmax`` if exactly one output applies, ``sigmoid`` if each is independent.
    """

    weights: tuple[Vectors, ...]
    biases: tuple[Vectors, ...]
    temperature: float = 1.0
    kind: Kind = "softmax"

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of inputs and outputs."""
        return self.weights[0].shape[0], self.biases[-1].shape[0]

    def logits(self, inputs: Vectors) -> Vectors:
        """``[rows, inputs]`` to ``[rows, outputs]``."""
        hidden = inputs
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer:
                hidden = np.maximum(hidden, 0)
            hidden = hidden @ weight + bias
        return hidden

    def probabilities(self, inputs: Vectors) -> Floats:
        """Calibrated, ``[rows, outputs]``; rows of a softmax sum to 1."""
        activation = softmax if self.kind == "softmax" else sigmoid
        return activation(self.logits(inputs), self.temperature)

    def to_bytes(self) -> bytes:
        """An ``.npz`` archive: ``weight0``, ``bias0``, ..., ``temperature`` and ``kind``."""
        arrays = {f"weight{i}": w for i, w in enumerate(self.weights)}
        arrays |= {f"bias{i}": b for i, b in enumerate(self.biases)}
        stream = io.BytesIO()
        np.savez(
            stream,
            temperature=np.float64(self.temperature),
            kind=np.array(self.kind),
            **arrays,  # type: ignore[arg-type]
        )
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """Read the result of ``to_bytes``.

        Raises:
            BadZipFile, EOFError, KeyError, ValueError: it is damaged.
        """
        try:
            with np.load(io.BytesIO(blob), allow_pickle=False) as held:
                return cls._read({name: held[name] for name in held.files})
        except RuntimeError as error:
            # a flipped bit says that the archive is encrypted, or of a later version
            raise ValueError("the archive is damaged") from error

    @classmethod
    def _read(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        # the archive has checksums of the arrays, but none of their names
        layers = range((len(arrays) - 1) // 2)
        named = {f"{part}{i}" for part in ("weight", "bias") for i in layers} | {"temperature"}
        if not layers or arrays.keys() - {"kind"} != named:
            raise ValueError("the archive lacks a part of the network")
        # heads from before there were two kinds do not name theirs
        kind = str(arrays.get("kind", "softmax"))
        return cls(
            tuple(arrays[f"weight{i}"] for i in layers),
            tuple(arrays[f"bias{i}"] for i in layers),
            float(arrays["temperature"]),
            "sigmoid" if kind == "sigmoid" else "softmax",
        )


@dataclass(frozen=True, slots=True)
class Learnt:
    """The result of a training.

    Attributes:
        labels: the network's outputs in order.
        report: figures of the training, as JSON values.
    """

    labels: list[str]
    network: Network
    report: dict[str, Any]


def softmax(logits: Vectors | Floats, temperature: float = 1.0) -> Floats:
    """Rows of ``logits / temperature`` as probabilities."""
    wide = logits.astype(np.float64) / temperature
    wide = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return np.asarray(wide / wide.sum(axis=-1, keepdims=True), dtype=np.float64)


def sigmoid(logits: Vectors | Floats, temperature: float = 1.0) -> Floats:
    """Each of ``logits / temperature`` as an independent probability."""
    # tanh does not overflow
    return np.asarray(0.5 + 0.5 * np.tanh(logits.astype(np.float64) / (2 * temperature)))


def contrast(logits: Vectors) -> Floats:
    """The highest logit of each row less their mean; low for texts of none of the labels.

    Probabilities hide that: a text that fits all labels badly may still fit one of them best.
    """
    return np.asarray(logits.max(axis=-1) - logits.mean(axis=-1), dtype=np.float64)


_FIELD = "checksum"
_TEXTS = ("name", "uid", "revision")
# the columns that a report's checksum covers, and the report
COLUMNS = (*_TEXTS, "labels", "network", "report")


def sealed(row: Mapping[str, Any]) -> str:
    """The report of a head as JSON, with a checksum.

    Args:
        row: has ``COLUMNS``; the report is a mapping, the network the bytes of a file.
    """
    return json.dumps({**row["report"], _FIELD: _checksum(row, row["report"])})


def unsealed(row: Mapping[str, Any]) -> dict[str, Any]:
    """The report of a stored head.

    Args:
        row: has ``COLUMNS``, with the report that ``sealed`` returned.

    Raises:
        TypeError, ValueError: the row does not match its checksum.
    """
    report: dict[str, Any] = json.loads(row["report"])
    held = report.pop(_FIELD, None)
    if held is not None and held != _checksum(row, report):
        raise ValueError("the head differs from its checksum")
    return report


def _checksum(row: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    texts = [*(row[name] for name in _TEXTS), *row["labels"], json.dumps(report)]
    parts = [row["network"], *(text.encode("utf-8", "surrogatepass") for text in texts)]
    # each part follows its length, so that no two rows give the same bytes
    state = hashlib.blake2b(repr([len(part) for part in parts]).encode(), digest_size=16)
    for part in parts:
        state.update(part)
    return state.hexdigest()
