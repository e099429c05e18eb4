"""A view as the rows the encoder reads."""

from __future__ import annotations

import numpy as np

from training.views.types import Ids, View


def pack_windows(view: View, window: int, most: int) -> list[Ids]:
    """Pack a view's pieces into windows of at most ``window`` tokens, ``most`` windows at most.

    A window ends where the next sentence no longer fits; a longer sentence is cut. Where
    ``most`` is 1, the only window is filled to the last token.

    Args:
        view: pieces of token ids, none empty.
        window: tokens a window holds, special tokens not counted.
        most: windows kept.

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
