"""Pairs of documents with and without a link, split by document."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from docsplit.corpora.sets import Linked

Pairs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PairSplit:
    """Balanced pairs. The two parts share no document.

    Attributes:
        train, test: document numbers, int64 ``[pairs, 2]``, the citing one first; the linked pairs
            are the first half.
    """

    train: Pairs
    test: Pairs


def split_pairs(data: Linked, test_share: float, seed: int) -> PairSplit:
    """Split the documents, keep the links within a part, add equally many pairs without a link.

    A pair without a link joins a citing document of the part with another document of the part.
    """
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(data.documents))
    tests = round(len(order) * test_share)
    test, train = order[:tests], order[tests:]
    return PairSplit(balanced(data, train, draw), balanced(data, test, draw))


def balanced(data: Linked, documents: npt.NDArray[np.int64], draw: np.random.Generator) -> Pairs:
    """The links among some documents, and equally many pairs without a link."""
    inside = np.zeros(len(data.documents), dtype=bool)
    inside[documents] = True
    pairs = data.pairs
    linked = pairs[inside[pairs].all(axis=1)]
    others = [(int(a), _unlinked(data, int(a), documents, draw)) for a, _ in linked]
    unlinked = [(a, b) for a, b in others if b is not None]
    kept = linked[: len(unlinked)]
    return np.concatenate([kept, np.asarray(unlinked, dtype=np.int64).reshape(-1, 2)])


def _unlinked(
    data: Linked, citing: int, documents: npt.NDArray[np.int64], draw: np.random.Generator
) -> int | None:
    forbidden: Collection[int] = data.links[citing] | {citing}
    for _ in range(100):
        other = int(draw.choice(documents))
        if other not in forbidden and citing not in data.links.get(other, frozenset()):
            return other
    return None
