"""Draw the views of a document of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from training.data.cache import TokenCache
from training.views.types import Pair, View, ViewContext, ViewFunction


@dataclass(frozen=True)
class Drawn:
    """The views of a document.

    Attributes:
        pair: its two views.
        partner: number of the document that the second view is from.
        negatives: further documents by number, each with a view that is a negative.
    """

    pair: Pair
    partner: int
    negatives: Sequence[tuple[int, View]] = ()


class Drawer(Protocol):
    """Draws the views of a document of the cache."""

    def __call__(self, document: int, rng: np.random.Generator) -> Drawn:
        """The views. The same generator state gives the same views."""
        ...


class OwnViews:
    """Both views are from the document itself."""

    def __init__(self, cache: TokenCache, view: ViewFunction, context: ViewContext) -> None:
        """Draw by ``view`` from the documents of ``cache``."""
        self._cache, self._view, self._context = cache, view, context

    def __call__(self, document: int, rng: np.random.Generator) -> Drawn:
        """The views of one document."""
        return Drawn(self._view(self._cache.sentences(document), rng, self._context), document)
