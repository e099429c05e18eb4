"""Finds the windows of a document that decided its label, by leaving each of them out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from docsplit.heads.network import Scorer
from docsplit.windowing.pooling import Vectors, normalise
from service.embedding.embedder import Document

WINDOWS = 3
# windows times outputs that are scored at once
PART_SCORES = 1_000_000


@dataclass(frozen=True, slots=True)
class Contribution:
    """A window, by its first character and one past its last, and its contribution."""

    start: int
    end: int
    contribution: float


def decisive(network: Scorer, output: int, document: Document, prior: float) -> list[Contribution]:
    """Up to three windows that contribute most to an output, the strongest first.

    A window's contribution is the fall of the output's probability when the window is left out of
    the weighted mean (occlusion; Zeiler and Fergus 2014). The result leaves out windows
    without a positive contribution, except the strongest. A document of one window would leave
    nothing: its contribution is the probability minus ``prior``, the output's share of examples.
    """
    windows = document.windows
    whole = float(network.probabilities(normalise(document.vector())[None])[0, output])
    if len(windows) == 1:
        return [Contribution(windows[0].start, windows[0].end, whole - prior)]
    left = without(document.matrix(), np.array([window.weight for window in windows]))
    rows = max(1, PART_SCORES // network.shape[1])
    falls = whole - np.concatenate(
        [
            network.probabilities(left[first : first + rows])[:, output]
            for first in range(0, len(left), rows)
        ]
    )
    order = np.argsort(-falls, kind="stable")[:WINDOWS].tolist()
    return [
        Contribution(windows[i].start, windows[i].end, float(falls[i]))
        for place, i in enumerate(order)
        if place == 0 or falls[i] > 0
    ]


def without(windows: Vectors, weights: NDArray[np.float64]) -> Vectors:
    """The document's unit vector without each of its windows in turn, ``[windows, dimensions]``."""
    weighted = windows.astype(np.float64) * weights[:, None]
    return normalise((weighted.sum(axis=0) - weighted).astype(np.float32))
