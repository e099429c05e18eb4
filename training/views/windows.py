"""Pack a view into rows for the encoder."""

import numpy as np

from training.views.types import Ids, View


def pack_windows(view: View, window: int, most: int) -> list[Ids]:
    """Pack a view's pieces into at most ``most`` windows of at most ``window`` tokens.

    A window ends before a sentence that no longer fits. A sentence longer than a window is cut. If
    ``most`` is 1, the tokens fill the only window completely.

    Args:
        view: pieces of token ids, none empty.
        window: tokens of a window, special tokens not counted.
        most: maximum number of windows.

    Returns:
        1 to ``most`` arrays of 1 to ``window`` ids.
    """
    if most == 1:
        return [_head(view, window)]
    windows: list[Ids] = []
    current: list[Ids] = []
    room = window
    for piece in view:
        rest = piece
        while len(rest):
            if len(rest) > room and current:
                windows.append(np.concatenate(current))
                current, room = [], window
            current.append(rest[:room])
            room -= len(current[-1])
            rest = rest[len(current[-1]) :]
        if len(windows) >= most:
            return windows[:most]
    if current:
        windows.append(np.concatenate(current))
    return windows[:most]


def _head(view: View, window: int) -> Ids:
    pieces, room = [], window
    for piece in view:
        pieces.append(piece[:room])
        room -= len(pieces[-1])
        if room == 0:
            break
    return np.concatenate(pieces)
