"""Formulas of XLSX cells that have no value."""

import re
from html import unescape

from docsplit.extraction.content import UnreadableError

# A cell with a formula, and whether its value is missing. Cells that share a formula name it by a
# number; the first of them has its text. With a type, the value is an empty text.
_CELL = re.compile(
    rb"<(?:\w+:)?c(?=\s)([^<>]*)>\s*"
    rb"<(?:\w+:)?f(\s[^<>]*?)?(?:/>|>([^<>]*)</(?:\w+:)?f>)"
    rb"((?:\s*<(?:\w+:)?v(?:\s*/>|></(?:\w+:)?v>))?\s*</(?:\w+:)?c>)?"
)
_PLACE = re.compile(rb"\sr=[\"']([A-Z]{1,3})(\d{1,7})[\"']")
_SHARED = re.compile(rb"\st=[\"']shared[\"']")
_NUMBER = re.compile(rb"\ssi=[\"'](\d{1,10})[\"']")
# texts, names of sheets and names of columns hold no references; nor do functions and other names
_REFERENCE = re.compile(
    r""""[^"]*"|'[^']*'|\[[^][]*\]"""
    r"|(?<![\w.$])(?:(?P<column>\$?[A-Z]{1,3})(?P<row>\$?[1-9]\d{0,6})"
    r"|(?P<left>\$?[A-Z]{1,3}):(?P<right>\$?[A-Z]{1,3})"
    r"|(?P<top>\$?[1-9]\d{0,6}):(?P<bottom>\$?[1-9]\d{0,6}))(?![\w.(!])"
)
# of a sheet; a reference beyond the last goes on at the first
_COLUMNS, _ROWS = 1 << 14, 1 << 20


def unsaved(part: bytes, most: int) -> dict[tuple[int, int], str]:
    """The formulas of cells without a value, as a program that does not compute writes them.

    Args:
        part: XML of a sheet.
        most: characters of all formulas that cells share.

    Returns:
        Formulas by row and column, from 0.

    Raises:
        UnreadableError: there are more characters.
    """
    found: dict[tuple[int, int], str] = {}
    shared: dict[bytes, tuple[tuple[int, int], str]] = {}
    size = 0
    for attributes, of_formula, formula, missing in _CELL.findall(part):
        at = _PLACE.search(attributes)
        if at is None:
            continue
        place = int(at[2]) - 1, _number(at[1].decode()) - 1
        text = unescape(formula.decode("utf-8", "replace"))
        number = _NUMBER.search(of_formula) if _SHARED.search(of_formula) else None
        if number is not None and text:
            shared[number[1]] = place, text
        if not missing or b" t=" in attributes:
            continue
        if number is not None and not text and number[1] in shared:
            first, text = shared[number[1]]
            size += len(text)
            if size > most:
                raise UnreadableError(f"more than {most:,} characters of formulas; split it")
            text = _moved(text, place[0] - first[0], place[1] - first[1])
        if text:
            found[place] = f"={text}"
    return found


def _moved(formula: str, rows: int, columns: int) -> str:
    """A formula as a cell that is so many rows and columns away has it."""

    def moved(found: re.Match[str]) -> str:
        column, row, left, right, top, bottom = found.groups()
        if column:
            return _column(column, columns) + _row(row, rows)
        if left:
            return f"{_column(left, columns)}:{_column(right, columns)}"
        return f"{_row(top, rows)}:{_row(bottom, rows)}" if top else found[0]

    return _REFERENCE.sub(moved, formula)


def _row(row: str, by: int) -> str:
    return row if row.startswith("$") else str((int(row) - 1 + by) % _ROWS + 1)


def _column(column: str, by: int) -> str:
    if column.startswith("$"):
        return column
    rest, letters = (_number(column) - 1 + by) % _COLUMNS + 1, ""
    while rest:
        rest, last = divmod(rest - 1, 26)
        letters = chr(ord("A") + last) + letters
    return letters


def _number(column: str) -> int:
    """The number of a column, from 1."""
    number = 0
    for letter in column:
        number = 26 * number + ord(letter) - ord("@")
    return number
