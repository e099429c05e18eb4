"""Views of linked documents, with hard negatives."""

import numpy as np

from training.data.cache import TokenCache
from training.links.graph import LinkGraph
from training.links.mining import HardNegatives
from training.views.drawing import Drawer, Drawn
from training.views.types import Document, View, ViewContext


class LinkedViews:
    """A passage of a document, one of a linked document, and some of hard negatives.

    A passage consists of neighbouring sentences, as many as the windows of a view hold.

    Args:
        cache: the documents.
        graph: their links.
        negatives: the hard negatives of each linked document; None for none.
        context: the settings, and the room of a window.
        other: draws the views of documents without links, and a share of the others.
    """

    def __init__(
        self,
        cache: TokenCache,
        graph: LinkGraph,
        negatives: HardNegatives | None,
        context: ViewContext,
        other: Drawer | None,
    ) -> None:
        self._cache, self._graph, self._negatives = cache, graph, negatives
        self._count = context.objective.hard_negatives or 0
        self._share = context.objective.mix_share
        self._room = context.window * context.objective.windows
        self._other = other

    def __call__(self, document: int, rng: np.random.Generator) -> Drawn:
        """The views of one document."""
        linked = self._graph.neighbours.get(document)
        if self._other is not None and (linked is None or rng.random() < self._share):
            return self._other(document, rng)
        if linked is None:
            raise ValueError(f"document {document} has no link")
        partner = int(rng.choice(linked))
        first, second = (self._passage(one, rng) for one in (document, partner))
        return Drawn((first, second), partner, self._hard(document, rng))

    def _hard(self, document: int, rng: np.random.Generator) -> list[tuple[int, View]]:
        if self._negatives is None:
            return []
        hard = self._negatives.of(document)
        chosen = rng.permutation(hard)[: self._count].tolist()
        return [(one, self._passage(one, rng)) for one in chosen]

    def _passage(self, document: int, rng: np.random.Generator) -> View:
        return passage(self._cache.sentences(document), self._room, rng)


def passage(document: Document, room: int, rng: np.random.Generator) -> View:
    """Neighbouring sentences that begin anywhere and fill ``room`` tokens, as far as there are
    enough. A shorter document is its own passage."""
    # tokens from the beginning of each sentence to the end of the document
    left = np.cumsum([len(sentence) for sentence in reversed(document)])[::-1]
    starts = max(1, int((left >= room).sum()))
    start = int(rng.integers(starts))
    last = int((left > left[start] - room).sum())
    return list(document[start:last])
