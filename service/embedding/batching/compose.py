"""Which windows share a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def together(lengths: Sequence[int], lead: int, budget: int, overhead: int) -> slice:
    """The windows that go with one of them, when all are batched at the least cost.

    A batch costs its padded tokens and ``overhead``; the cheapest division of sorted windows into
    runs follows from the cheapest divisions of their tails (dynamic programming).

    Args:
        lengths: padded lengths in tokens, descending.
        lead: position of the window that has to go.
        budget: padded tokens of a batch at most; a longer window goes alone.
        overhead: what a batch costs beside its tokens, in tokens.

    Returns:
        Positions of the run that holds ``lead``.
    """
    count = len(lengths)
    costs = np.zeros(count + 1)
    ends = [count] * count
    sizes = np.arange(1, max(1, budget // lengths[-1]) + 1)
    for first in range(count - 1, -1, -1):
        length = lengths[first]
        most = min(max(1, budget // length), count - first)
        offers = costs[first + 1 : first + most + 1] + length * sizes[:most]
        best = int(offers.argmin())
        costs[first] = offers[best] + overhead
        ends[first] = first + best + 1
    first = 0
    while ends[first] <= lead:
        first = ends[first]
    return slice(first, ends[first])
