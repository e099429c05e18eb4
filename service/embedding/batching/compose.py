"""Choose the windows that share a batch."""

from collections.abc import Sequence

import numpy as np


def together(lengths: Sequence[int], lead: int, budget: int, overhead: int) -> slice:
    """The windows to batch with a given one, so that all windows together cost least.

    A batch costs its padded tokens plus ``overhead``. The cheapest division of sorted windows into
    runs follows from the cheapest divisions of their tails (dynamic programming).

    Args:
        lengths: padded lengths in tokens, descending.
        lead: position of the given window.
        budget: most padded tokens in a batch; a longer window gets its own batch.
        overhead: fixed cost of a batch, in tokens.

    Returns:
        Positions of the run that contains ``lead``.
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
