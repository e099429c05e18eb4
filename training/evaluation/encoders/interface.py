"""What an encoder is to an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

# whole: windows and their token-weighted mean. first: only the first window, filled.
Reading = Literal["whole", "first"]
Vectors: TypeAlias = npt.NDArray[np.float32]
# Vectors, or a scipy.sparse matrix of the same shape.
Features: TypeAlias = Any


class Encoder(Protocol):
    """Texts in, unit vectors out.

    Attributes:
        name: as the report calls it.
        kind: what it is.
        revision: changes when any vector could change.
        details: what a reader of the report should know, by name.
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
    """What tasks ask for features of texts.

    Attributes:
        name: as the report calls it.
        kind: what it is.
        revision: changes when any feature could change.
        details: what a reader of the report should know, by name.
        readings: the readings it knows.
        sparse: features are sparse, and a linear model stands in for a perceptron.
    """

    name: str
    kind: str
    revision: str
    details: dict[str, str]
    readings: tuple[Reading, ...]
    sparse: bool

    def fitted(self, texts: Sequence[str]) -> Representation:
        """Learned from the texts of a set where it learns at all; else itself."""
        ...

    def features(self, texts: Sequence[str], reading: Reading = "whole") -> Features:
        """Rows of unit length ``[texts, dimensions]``; a sparse row may be zero."""
        ...

    def pace(self) -> float | None:
        """Seconds for 1,000 words so far; None where nothing was computed."""
        ...
