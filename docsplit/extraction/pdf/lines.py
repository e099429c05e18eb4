"""What a PDF's pages repeat, and words that a line's end divides."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

# lines at each edge of a page that may repeat
_EDGE = 3
_EDGES = (0, -1)
# pages that must repeat a line before its first copy goes too: on fewer ones it may be text
_SURE = 5
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
    """The lines of each page without headers, footers and page numbers; see ``bodies``."""
    return [
        [lines[number] for number in own] for lines, own in zip(pages, bodies(pages), strict=True)
    ]


def bodies(pages: Sequence[list[str]]) -> list[list[int]]:
    """The numbers of the lines of each page that are neither headers nor footers.

    A line at the edge of a page is one of them if it stands at the same edge of many pages, with
    nothing different but a number that counts the pages. Each stays where it first stands if few
    pages have it, and where most lines at the edges of a page repeat: they may be text, such as the
    end of each part of a form, or a slide that is shown in steps.
    The first or last line of a page goes if it is the page's number.
    """
    repeated, sure = [], []
    for edge in _EDGES:
        counted = Counter(
            key for place, lines in enumerate(pages) for key in _keys_of(lines, place, edge)
        )
        repeated.append(
            {key for key, count in counted.items() if count >= _needed(key, len(pages))}
        )
        sure.append({key for key in repeated[-1] if counted[key] >= _SURE})
    found: list[list[int]] = []
    # lines of the former pages
    stay: set[str] = set()
    for place, lines in enumerate(pages):
        is_text = _is_text(lines, repeated)
        gone = {
            number
            for edge, keys, certain in zip(_EDGES, repeated, sure, strict=True)
            for number in _gone(lines, place, edge, keys, set() if is_text else certain, stay)
        }
        found.append([number for number in range(len(lines)) if number not in gone])
        stay.update(_plain(lines[number]) for number in found[-1])
    return found


def _needed(key: str, pages: int) -> float:
    """The number of pages that must have a key."""
    least = _LEAST_SHORT if len(key) < _SHORT else _LEAST
    # a number that counts the pages is no chance, even in the header of a short chapter
    return least if _MARK in key else max(least, _SHARE * pages)


def _is_text(lines: list[str], repeated: Sequence[set[str]]) -> bool:
    """Whether most lines at the edges of a page repeat."""
    share = {
        number
        for edge, keys in zip(_EDGES, repeated, strict=True)
        for number in _edge(lines, edge)
        if _plain(lines[number]) in keys
    }
    return 2 * len(share) > min(len(lines), 2 * _EDGE)


def _edge(lines: list[str], edge: int) -> list[int]:
    """The numbers of the lines at an edge, the outermost first."""
    numbers = range(len(lines))
    return list(numbers[:_EDGE] if edge == 0 else reversed(numbers[-_EDGE:]))


def _gone(
    lines: list[str], place: int, edge: int, repeated: set[str], sure: set[str], stay: set[str]
) -> Iterator[int]:
    """The lines at an edge that repeat, and those outside of them that a former page has too."""
    outside = False
    for depth, number in reversed(list(enumerate(_edge(lines, edge)))):
        plain, *counted = _keys(lines[number], place)
        if (
            not repeated.isdisjoint(counted)
            or plain in sure
            or (plain in stay and (plain in repeated or outside))
            or (not depth and _counts(lines[number], place))
        ):
            outside = True
            yield number


def _counts(line: str, place: int) -> bool:
    found = _NUMBERED.match(line.strip())
    return found is not None and int(found[1]) == place + 1


def _keys_of(lines: list[str], place: int, edge: int) -> set[str]:
    return {key for number in _edge(lines, edge) for key in _keys(lines[number], place)}


def _keys(line: str, place: int) -> Iterator[str]:
    """The line, and the line with its first or its last number counted from that of the page."""
    line = _plain(line)
    yield line
    numbers = list(_NUMBER.finditer(line))
    for found in {numbers[0], numbers[-1]} if numbers else ():
        yield f"{line[: found.start()]}{_MARK}{int(found[0]) - place}{_MARK}{line[found.end() :]}"


def _plain(line: str) -> str:
    return " ".join(line.split())


def joined(pages: Sequence[str]) -> list[str]:
    """The pages with the words whole that a line's end divides.

    A hyphen stays if a page has the word with it elsewhere, next to a digit or a capital letter,
    and after a single letter: no line ends so within a word.
    """
    known = {word for page in pages for word in _WHOLE.findall(page)}

    def join(match: re.Match[str]) -> str:
        before, after = match.groups()
        divides = len(before) > 1 and before[-1].islower() and after[0].islower()
        keeps = f"{before}-{after}" in known or not divides
        return f"{before}-" if keeps else before

    return [_DIVIDED.sub(join, page).replace(HYPHEN, "-\n") for page in pages]
