"""The interface of an encoder in an evaluation."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

# whole: windows and their weighted mean. first: only the first window, filled.
Reading = Literal["whole", "first"]
Vectors: TypeAlias = npt.NDArray[np.float32]
# Vectors, or a scipy.sparse matrix of the same shape.
Features: TypeAlias = Any


class Encoder(Protocol):
    """Turns texts into unit vectors.

    Attributes:
        name: its name in the report.
        kind: its type.
        revision: changes when any vector could change.
        details: facts for the reader of the report, by name.
    """

    name: str
    kind: str
    revision: str
    details: dict[str, str]

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``.

        Args:
            texts: whole documents, each with at least one word.
            reading: all of a document, or its first window.
        """
        ...


class Representation(Protocol):
    """Gives tasks the features of texts.

    Attributes:
        name: its name in the report.
        kind: its type.
        revision: changes when any feature could change.
        details: facts for the reader of the report, by name.
        readings: the readings that it supports.
        sparse: whether features are sparse; a linear model then replaces the perceptron.
    """

    name: str
    kind: str
    revision: str
    details: dict[str, str]
    readings: tuple[Reading, ...]
    sparse: bool

    def fitted(self, texts: Sequence[str]) -> "Representation":
        """Learn from the texts of a set. Returns itself if it learns nothing."""
        ...

    def features(self, texts: Sequence[str], reading: Reading = "whole") -> Features:
        """Rows of unit length ``[texts, dimensions]``; a sparse row may be zero."""
        ...

    def pace(self) -> float | None:
        """Seconds for 1,000 words so far; None if it computed nothing."""
        ...
