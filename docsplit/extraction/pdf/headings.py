"""Headings and the title of a PDF that does not state them, by the look of its letters."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from docsplit.extraction.pdf.layout import Line

# of the size of most letters: a heading's least size, and a bold heading's
_LARGER, _BOLD_LEAST = 1.09, 0.95
# a title is this much larger
_TITLE = 1.2
# lines and characters of a heading
_MOST_LINES, _MOST_CHARACTERS = 4, 200
# characters of a style of headings, as a share of all
_MOST_SHARE = 0.2
# lines of one heading are not further apart, in parts of their size
_APART = 1.5
_LEVELS = 6
_LETTERS = re.compile(r"[^\W\d_]{2}")
# a number before a heading, and the end of a line that is no heading
_NUMBERED = re.compile(
    r"(?:(?:[A-Z]|[IVXLC]{1,6})(?=[\d.:)\t])|\d{1,3}|§|Chapter|Section|Article)[\d.:)]*[\t ]"
)
_SENTENCE = re.compile(r"[.,;]$")


class Found(NamedTuple):
    """A heading.

    Attributes:
        page, first, last: numbers of its page and of its first and last line there.
        level: 1 is the highest.
    """

    page: int
    first: int
    last: int
    level: int


class _Style(NamedTuple):
    size: float
    bold: bool


def headings(pages: Sequence[Sequence[Line]]) -> list[Found]:
    """Short lines in letters that are larger than most, or bold and on a line of their own.

    Args:
        pages: lines of each page without what repeats.
    """
    letters: Counter[_Style] = Counter()
    for page in pages:
        for line in page:
            letters[_style(line)] += len(line.text)
    letters.pop(_Style(0.0, False), None)
    if not letters:
        return []
    body = max(letters, key=lambda style: letters[style])
    most = _MOST_SHARE * letters.total()
    styles = {style for style in letters if _stands_out(style, body) and letters[style] <= most}
    found = [one for number, page in enumerate(pages) for one in _on(number, page, styles, body)]
    ranks = sorted({style for style, _ in found}, reverse=True)
    level = {style: min(rank, _LEVELS) for rank, style in enumerate(ranks, 1)}
    return [one._replace(level=level[style]) for style, one in found]


def title(pages: Sequence[Sequence[Line]]) -> str | None:
    """The first of the largest lines of the first page with text, if they are much larger."""
    first = next((page for page in pages if page), [])
    letters: Counter[float] = Counter()
    for page in pages:
        for line in page:
            letters[_style(line).size] += len(line.text)
    body = max(letters, key=lambda size: letters[size], default=0.0)
    sizes = [_style(line).size for line in first if _LETTERS.search(line.text)]
    largest = max(sizes, default=0.0)
    if not body or largest < _TITLE * body:
        return None
    for size, group in groupby(first, lambda line: _style(line).size):
        lines = list(group)
        for begin, end in pairwise([*_begins(lines), len(lines)]):
            text = " ".join(line.text for line in lines[begin:end])
            if size == largest and _LETTERS.search(text):
                return text if len(text) <= _MOST_CHARACTERS else None
    return None


def _style(line: Line) -> _Style:
    return _Style(round(2 * line.size) / 2, line.bold)


def _stands_out(style: _Style, body: _Style) -> bool:
    if style.size >= _LARGER * body.size:
        return True
    return style.bold and not body.bold and style.size >= _BOLD_LEAST * body.size


def _on(
    number: int, page: Sequence[Line], styles: set[_Style], body: _Style
) -> Iterator[tuple[_Style, Found]]:
    place = 0
    for style, group in groupby(page, _style):
        lines = list(group)
        first, place = place, place + len(lines)
        if style not in styles or len(lines) > _MOST_LINES:
            continue
        for begin, end in pairwise([*_begins(lines), len(lines)]):
            text = " ".join(line.text for line in lines[begin:end])
            if _is_heading(text, larger=style.size >= _LARGER * body.size):
                yield style, Found(number, first + begin, first + end - 1, 0)


def _begins(lines: Sequence[Line]) -> list[int]:
    """The lines in one style that begin another heading: after a gap, and with a number."""
    return [
        number
        for number, line in enumerate(lines)
        if not number
        or _NUMBERED.match(line.text)
        or lines[number - 1].bottom - line.bottom > _APART * line.size
    ]


def _is_heading(text: str, *, larger: bool) -> bool:
    number = _NUMBERED.match(text)
    words = text[number.end() :] if number else text
    return (
        _LETTERS.search(words) is not None
        # cells of a table
        and "\t" not in words
        and len(text) <= _MOST_CHARACTERS
        and (larger or not (_SENTENCE.search(text) or words[:1].islower()))
    )
