"""Several objectives in one batch."""

from collections.abc import Sequence

import numpy as np

from training.views.types import Document, Pair, ViewContext, ViewFunction


class Mixture:
    """Views of one of several kinds, chosen at random for each document of a batch.

    All documents of a batch remain negatives of each other, independent of the kind.

    Args:
        view: the first kind.
        others: the other kinds.
        share: probability of one of ``others``, each of which is as likely.
    """

    def __init__(self, view: ViewFunction, others: Sequence[ViewFunction], share: float) -> None:
        self._view, self._others, self._share = view, others, share

    def __call__(self, document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
        """Views of one document."""
        drawn = rng.random() / self._share
        view = self._others[int(drawn * len(self._others))] if drawn < 1 else self._view
        return view(document, rng, context)
