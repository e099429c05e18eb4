"""Folds in which every label of multi-label examples has its share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.heads.network import Floats

Indicators = NDArray[np.int64]


def folds(indicators: Indicators, number: int) -> Indicators:
    """The fold of each example, by iterative stratification (Sechidis et al. 2011, figure 1).

    The rarest label is dealt out first, each of its examples to the fold that lacks most of it.

    Args:
        indicators: 1 where an example has a label, ``[examples, labels]``.
        number: of folds; no label may have fewer examples.

    Returns:
        0 to ``number - 1``, ``[examples]``. The same examples get the same folds.
    """
    draw = np.random.default_rng(0)
    fold = np.full(len(indicators), -1)
    room = np.full(number, len(indicators) / number)
    wanted = np.repeat(indicators.sum(axis=0)[None] / number, number, axis=0)
    while (fold < 0).any():
        left = indicators[fold < 0].sum(axis=0)
        if not left.any():
            for example in draw.permutation(np.flatnonzero(fold < 0)):
                fold[example] = _most(room, room, draw)
                room[fold[example]] -= 1
            break
        rarest = int(np.where(left > 0, left, len(indicators) + 1).argmin())
        for example in draw.permutation(np.flatnonzero((fold < 0) & (indicators[:, rarest] == 1))):
            chosen = _most(wanted[:, rarest], room, draw)
            fold[example] = chosen
            wanted[chosen] -= indicators[example]
            room[chosen] -= 1
    return fold


def _most(wanted: Floats, room: Floats, draw: np.random.Generator) -> int:
    best = np.flatnonzero(wanted == wanted.max())
    best = best[room[best] == room[best].max()]
    return int(draw.choice(best))
