"""Puts a text together, with its pages and headings."""

import re
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
