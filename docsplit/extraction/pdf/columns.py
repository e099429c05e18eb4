"""Columns of prose on a PDF's page, one after the other."""

import re
from collections.abc import Sequence
from itertools import accumulate
from statistics import median
from typing import NamedTuple

from docsplit.extraction.pdf.lines import HYPHEN

# lines of a column; with fewer its order could be that of a table
_LEAST_LINES = 5
# characters of most lines in a column of prose, and the share of lines that go on in the middle
_LEAST_LENGTH, _LEAST_WITHIN = 15, 0.4
# a blank between the lines of a column is lower, in parts of the letters' size
_APART = 2.5
_DIVIDED = re.compile(r"(?<=\w)-$")


class Cell(NamedTuple):
    """A part of a line without a wide blank; edges in points from the left of the page."""

    text: str
    left: float
    right: float


class Row(NamedTuple):
    """A line of a page; see ``docsplit.extraction.pdf.layout.Line``."""

    cells: list[Cell]
    size: float
    bold: bool
    bottom: float


def ordered(rows: Sequence[Row]) -> list[Row]:
    """The rows with the columns of prose one after the other that a program wrote line by line.

    Such columns share the white strip between them, which no line crosses. Tables do, too, but
    few of their cells go on in the middle of a sentence.
    """
    gaps = [
        (one.right, other.left)
        for row in rows
        for one, other in zip(row.cells, row.cells[1:], strict=False)
    ]
    if len(gaps) < _LEAST_LINES:
        return list(rows)
    strip = _shared(gaps)
    done: list[Row] = []
    region: list[Row] = []
    for row in rows:
        if any(cell.left < strip < cell.right for cell in row.cells):
            done += [*_columns(region, strip), row]
            region = []
            continue
        if region and _is_apart(region[-1], row):
            # such as a header or a footer
            done += _columns(region, strip)
            region = []
        region.append(row)
    return done + _columns(region, strip)


def _is_apart(row: Row, other: Row) -> bool:
    """Whether a line stands by itself beside another one."""
    single = len(row.cells) == 1 or len(other.cells) == 1
    return single and abs(row.bottom - other.bottom) > _APART * max(row.size, other.size)


def _shared(gaps: Sequence[tuple[float, float]]) -> float:
    """The middle of the place that most gaps have in common."""
    edges = sorted([(left, 1) for left, _ in gaps] + [(right, -1) for _, right in gaps])
    counts = accumulate(change for _, change in edges)
    _, first = max(zip(counts, range(0, -len(edges), -1), strict=True))
    return (edges[-first][0] + edges[1 - first][0]) / 2


def _columns(rows: list[Row], strip: float) -> list[Row]:
    """The rows left of a strip, and then those right of it, if both are prose."""
    sides = [
        [
            row._replace(cells=[cell for cell in row.cells if (cell.left < strip) == left])
            for row in rows
        ]
        for left in (True, False)
    ]
    both = [pair for pair in zip(*sides, strict=True) if pair[0].cells and pair[1].cells]
    if len(both) < _LEAST_LINES or not _are_prose(*zip(*both, strict=True)):
        return rows
    return [
        row for side in sides for row in ordered([_with_hyphen(row) for row in side if row.cells])
    ]


def _are_prose(*sides: Sequence[Row]) -> bool:
    """Whether many lines go on in the middle of a sentence; a column may also have code."""
    shares: list[float] = []
    for side in sides:
        texts = [cell.text for row in side for cell in row.cells]
        within = sum(not (text[0].isupper() or text[0].isdigit()) for text in texts)
        shares.append(within / len(texts))
        if median(map(len, texts)) < _LEAST_LENGTH or shares[-1] < _LEAST_WITHIN / 2:
            return False
    return sum(shares) >= _LEAST_WITHIN * len(shares)


def _with_hyphen(row: Row) -> Row:
    *cells, last = row.cells
    return row._replace(cells=[*cells, last._replace(text=_DIVIDED.sub(HYPHEN, last.text))])
