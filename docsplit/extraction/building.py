"""Puts a text together, with its pages and headings."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from docsplit.extraction.content import Content, Heading, Limits, UnreadableError

# stands in a block where a page begins: not a character, so no text means it
PAGE = "\ufdd0"
# control characters except tab and line feed, halves of surrogate pairs, and non-characters
_UNWANTED = re.compile(f"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff{PAGE}\ufffe\uffff]")
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c]")
_NUMBER = re.compile(r"[+\-−]?\d[\d\s.,;–-]*")
_RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
# longest title and author; an index takes longer ones, and no file means them
_MOST = 1000


class Builder:
    """Collects the blocks of a text; a blank line stands between two blocks.

    Args:
        limits: of the text.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.characters
        self._blocks: list[str] = []
        self._size = 0
        self._pages: list[int] = []
        self._headings: list[Heading] = []

    @property
    def size(self) -> int:
        """The number of characters so far, which is where the next block begins."""
        return self._size

    def add(self, block: str) -> None:
        """Add a block, if it holds anything; each ``PAGE`` in it begins a page.

        Raises:
            UnreadableError: the text is longer than the limit.
        """
        pieces = [clean(piece) for piece in block.split(PAGE)]
        pieces[0] = pieces[0].lstrip("\n")
        pieces[-1] = pieces[-1].rstrip()
        text = pieces[0]
        for piece in pieces[1:]:
            self._pages.append(self._size + len(text))
            text += piece
        if not text.strip():
            return
        self._blocks.append(text)
        self._size += len(text) + 2
        if self._size > self._most:
            raise UnreadableError(f"more than {self._most:,} characters of text; split it")

    def heading(self, level: int, text: str, title: str | None = None) -> None:
        """Add a heading as a block of one line; a ``PAGE`` in it begins a page before it.

        Args:
            level: 1 is the highest.
            text: of the line.
            title: what hits show in its place.
        """
        for _ in range(text.count(PAGE)):
            self.page()
        text = " ".join(clean(text).split())
        if text:
            self._headings.append(Heading(self._size, level, clean(title or text)))
            self.add(text)

    def page(self) -> None:
        """Begin a page."""
        self._pages.append(self._size)

    def append(self, part: Content) -> None:
        """Add a text with its headings."""
        start = self._size
        self.add(part.text)
        self._headings += [h._replace(start=start + h.start) for h in part.headings]

    def content(
        self, title: str | None = None, author: str | None = None, date: str | None = None
    ) -> Content:
        """The text so far.

        Args:
            title: stated by the file; the first heading by default.
            author: stated by the file.
            date: in ISO 8601; any other is left out.
        """
        text = "\n\n".join(self._blocks)
        # a page without text may begin after the end
        pages = [min(start, len(text)) for start in self._pages]
        first = self._headings[0].title if self._headings else None
        title = line(title) or line(first)
        return Content(text, title, line(author), day(date), pages, self._headings)


def clean(text: str) -> str:
    """The text without characters that no text means, with line feeds as line ends."""
    if text.isprintable():
        # most lines, in a tenth of the time
        return text
    return _UNWANTED.sub("", _LINE_ENDS.sub("\n", text))


def raised(text: str) -> str:
    """A number above the line in Unicode's signs, which no search takes for a part of the word."""
    return text.translate(_RAISED) if _NUMBER.fullmatch(text.strip()) else text


def line(text: str | None) -> str | None:
    """A title or a name in one line of bounded length; None if it is empty."""
    return " ".join(clean(text or "").split())[:_MOST].rstrip() or None


def day(date: str | None) -> str | None:
    """A date or time in ISO 8601 as Python writes it; None for any other text."""
    try:
        moment = datetime.fromisoformat((date or "").strip())
    except ValueError:
        return None
    return moment.date().isoformat() if len((date or "").strip()) <= 10 else moment.isoformat()


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
_DIGITS = re.compile(r"\d{1,6}")
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
    numbers = list(_DIGITS.finditer(line))
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
