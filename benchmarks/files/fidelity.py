"""How much of a text a reader found, in order."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher


def fidelity(true: str, found: str) -> float:
    """The share of characters, blanks apart, in words that both texts have in the same order.

    Of the longer text: a reader that adds text loses as one that omits text does.
    """
    expected, held = true.split(), found.split()
    blocks = SequenceMatcher(None, expected, held, autojunk=False).get_matching_blocks()
    same = sum(_size(expected[one.a : one.a + one.size]) for one in blocks)
    return same / max(1, _size(expected), _size(held))


def right_pages(true: Sequence[str], text: str, starts: Sequence[int]) -> int:
    """The number of pages whose text is right up to a tenth; 0 if their number is wrong."""
    if not starts or len(true) != len(starts):
        return 0
    ends = [*starts[1:], len(text)]
    parts = (text[start:end] for start, end in zip(starts, ends, strict=True))
    return sum(fidelity(page, part) >= 0.9 for page, part in zip(true, parts, strict=True))


def _size(words: Sequence[str]) -> int:
    return sum(map(len, words))
