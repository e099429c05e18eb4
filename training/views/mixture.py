"""Two objectives in one batch."""

import numpy as np

from training.views.types import Document, Pair, ViewContext, ViewFunction


class Mixture:
    """Views of one of two kinds, chosen at random for each document of a batch.

    All documents of a batch remain negatives of each other, independent of the kind.

    Args:
        view: the first kind.
        other: the second kind.
        share: probability of ``other``.
    """

    def __init__(self, view: ViewFunction, other: ViewFunction, share: float) -> None:
        self._view, self._other, self._share = view, other, share

    def __call__(self, document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
        """Views of one document."""
        view = self._other if rng.random() < self._share else self._view
        return view(document, rng, context)
