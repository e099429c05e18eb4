"""Splits multi-label examples into folds with an equal share of every label."""

import numpy as np
from numpy.typing import NDArray

from docsplit.heads.fitting import Check
from docsplit.heads.network import Floats

Indicators = NDArray[np.uint8]


def folds(indicators: Indicators, number: int, check: Check = lambda: None) -> NDArray[np.int64]:
    """The fold of each example, by iterative stratification (Sechidis et al. 2011, figure 1).

    The rarest label comes first; each of its examples goes to the fold that lacks most of it.

    Args:
        indicators: 1 if an example has a label, ``[examples, labels]``.
        number: of folds; no label may have fewer examples.
        check: raises to stop the training.

    Returns:
        0 to ``number - 1``, ``[examples]``. The same examples get the same folds.
    """
    draw = np.random.default_rng(0)
    fold = np.full(len(indicators), -1)
    room = np.full(number, len(indicators) / number)
    left = indicators.sum(axis=0, dtype=np.int64)
    wanted = np.repeat(left[None] / number, number, axis=0)
    while (fold < 0).any():
        if not left.any():
            for example in draw.permutation(np.flatnonzero(fold < 0)):
                check()
                fold[example] = _most(room, room, draw)
                room[fold[example]] -= 1
            break
        rarest = int(np.where(left > 0, left, len(indicators) + 1).argmin())
        for example in draw.permutation(np.flatnonzero((fold < 0) & (indicators[:, rarest] == 1))):
            check()
            chosen = _most(wanted[:, rarest], room, draw)
            fold[example] = chosen
            wanted[chosen] -= indicators[example]
            left -= indicators[example]
            room[chosen] -= 1
    return fold


def _most(wanted: Floats, room: Floats, draw: np.random.Generator) -> int:
    best = np.flatnonzero(wanted == wanted.max())
    best = best[room[best] == room[best].max()]
    return int(draw.choice(best))
