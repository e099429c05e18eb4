"""The numbers that programs show before the items of lists and before headings."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"),
          (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))  # fmt: skip
# greater numbers are shown as digits, as some programs do
_MOST = 5000
_PLACE = re.compile(r"%(\d)")
LEVELS = 9


def _letters(number: int) -> str:
    # after z comes aa, then bb
    return chr(97 + (number - 1) % 26) * (1 + (number - 1) // 26)


def _roman(number: int) -> str:
    found = ""
    for value, letters in _ROMAN:
        found += letters * (number // value)
        number %= value
    return found


_FORMATS: dict[str, Callable[[int], str]] = {
    "a": _letters,
    "A": lambda number: _letters(number).upper(),
    "i": _roman,
    "I": lambda number: _roman(number).upper(),
    "01": lambda number: f"{number:02}",
}


def label(style: str, number: int) -> str:
    """A number in letters, Roman or Arabic digits: styles are named as HTML and ODF name them."""
    write = _FORMATS.get(style, str) if 0 < number <= _MOST else str
    return write(number)


class Level(NamedTuple):
    """How a list numbers the items of a level.

    Attributes:
        text: with ``%1`` for the number of the first level, and so on; empty if it shows none.
        style: of the number; see ``label``.
        start: the first number.
    """

    text: str
    style: str = "1"
    start: int = 1


class Counter:
    """Counts the items of one list.

    Args:
        levels: from 1.
    """

    def __init__(self, levels: Mapping[int, Level]) -> None:
        self._levels = levels
        self._numbers: dict[int, int] = {}

    def next(self, level: int, start: int | None = None) -> str:
        """What stands before the next item of a level, with a blank after it.

        Args:
            level: from 1.
            start: the item's number; None counts on.
        """
        known = self._levels.get(level, Level(""))
        self._numbers = {one: held for one, held in self._numbers.items() if one <= level}
        counted = self._numbers[level] + 1 if level in self._numbers else known.start
        self._numbers[level] = counted if start is None else start
        shown = _PLACE.sub(self._shown, known.text).strip()
        return f"{shown} " if shown else ""

    def restart(self, level: int) -> None:
        """Let the next item of a level be its first."""
        self._numbers.pop(level, None)

    def _shown(self, place: re.Match[str]) -> str:
        level = int(place[1])
        known = self._levels.get(level, Level(""))
        return label(known.style, self._numbers.get(level, known.start))
