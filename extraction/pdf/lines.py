"""What a PDF's pages repeat, and words that a line's end divides."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

# lines at each edge of a page that may repeat
_EDGE = 3
# pages that must repeat a line, and their share of all pages: left and right pages may differ
_LEAST, _SHARE = 2, 0.3
# a shorter line, such as a brace, may stand at the edge of two pages by chance
_SHORT, _LEAST_SHORT = 10, 3
# around a number that is counted from that of the page
_MARK = "\0"
# how PDFium writes a hyphen at the end of a line
HYPHEN = "\ufffe"
# a page's number and nothing else
_NUMBERED = re.compile(r"(?i)(?:page |[-–] ?)?(\d{1,5})(?: ?[-–]| ?(?:of|/) ?\d{1,5})?$")
_NUMBER = re.compile(r"\d{1,6}")
# with a boundary before them, a long word costs linear time
_DIVIDED = re.compile(f"\\b(\\w+){HYPHEN}(?=(\\w+))")
_WHOLE = re.compile(r"\b\w+-\w+")


def without_repeated(pages: Sequence[list[str]]) -> list[list[str]]:
    """The lines of each page without headers, footers and page numbers."""
    return [lines[own] for lines, own in zip(pages, bodies(pages), strict=True)]


def bodies(pages: Sequence[list[str]]) -> list[slice]:
    """The lines of each page between its headers and its footers.

    A line at the edge of a page is one of them if it stands at the same edge of many pages, with
    nothing different but a number that counts the pages. The first or last line is one, too, if it
    is the page's number.
    """
    counts = {
        edge: Counter(
            key for place, lines in enumerate(pages) for key in _keys_of(lines, place, edge)
        )
        for edge in (0, -1)
    }
    repeated = {
        edge: {key for key, count in counted.items() if count >= _needed(key, len(pages))}
        for edge, counted in counts.items()
    }
    return [_body(lines, place, repeated) for place, lines in enumerate(pages)]


def _needed(key: str, pages: int) -> float:
    """The number of pages that must have a key."""
    least = _LEAST_SHORT if len(key) < _SHORT else _LEAST
    # a number that counts the pages is no chance, even in the header of a short chapter
    return least if _MARK in key else max(least, _SHARE * pages)


def _body(lines: list[str], place: int, repeated: dict[int, set[str]]) -> slice:
    first, last = 0, len(lines)
    for number, line in enumerate(lines[:_EDGE]):
        if not repeated[0].isdisjoint(_keys(line, place)) or (not number and _counts(line, place)):
            first = number + 1
    for number, line in enumerate(reversed(lines[first:][-_EDGE:])):
        if not repeated[-1].isdisjoint(_keys(line, place)) or (not number and _counts(line, place)):
            last = len(lines) - number - 1
    return slice(first, last)


def _counts(line: str, place: int) -> bool:
    found = _NUMBERED.match(line.strip())
    return found is not None and int(found[1]) == place + 1


def _keys_of(lines: list[str], place: int, edge: int) -> set[str]:
    found = lines[-_EDGE:] if edge else lines[:_EDGE]
    return {key for line in found for key in _keys(line, place)}


def _keys(line: str, place: int) -> Iterator[str]:
    """The line, and the line with its first or its last number counted from that of the page."""
    line = " ".join(line.split())
    yield line
    numbers = list(_NUMBER.finditer(line))
    for found in {numbers[0], numbers[-1]} if numbers else ():
        yield f"{line[: found.start()]}{_MARK}{int(found[0]) - place}{_MARK}{line[found.end() :]}"


def joined(pages: Sequence[str]) -> list[str]:
    """The pages with the words whole that a line's end divides.

    A hyphen stays if a page has the word with it elsewhere, next to a digit, and before a capital
    letter.
    """
    known = {word for page in pages for word in _WHOLE.findall(page)}

    def join(match: re.Match[str]) -> str:
        before, after = match.groups()
        keeps = f"{before}-{after}" in known or not (before[-1].isalpha() and after[0].islower())
        return f"{before}-" if keeps else before

    return [_DIVIDED.sub(join, page).replace(HYPHEN, "-\n") for page in pages]
