"""PDF: the text of each page in the order of reading, without what repeats on each page."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import BinaryIO

import pypdfium2 as pdfium

from docsplit.extraction.building import clean, day, line
from docsplit.extraction.content import Content, Heading, Limits, UnreadableError
from docsplit.extraction.pdf import headings as pdf_headings
from docsplit.extraction.pdf.layout import Line
from docsplit.extraction.pdf.lines import bodies, joined
from docsplit.extraction.pdf.pages import opened, pages_of

_SPELLED = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "\xad": ""})
# entries of an outline
_MOST_HEADINGS = 10_000
_ALIKE = {
    re.compile("['’‘`]"): "['’‘`]",
    re.compile('["“”]'): '["“”]',
    re.compile(r"\\-|[–—]"): "[-–—]",
}
# before a title on its line
_NUMBER = re.compile(r"[A-Z]?[\d.]+\s+|[A-Z]\s+")
_CREATED = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")
# what programs write where the user gave no title
_NO_TITLE = re.compile(
    r"(?i)(?:\(?(?:un(?:titled|specified|known)|anonymous|title|author)\)?|microsoft \w+ - .*"
    r"|.*\.(?:docx?|pptx?|xlsx?|tex|dvi|pdf|indd))$"
)
_SCAN = "a scan without text"
_FONTS = "its fonts do not say which characters they show"


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text with the first character of each page, and the headings of the outline.

    A PDF without an outline has headings by the look of its letters.
    """
    document = opened(stream)
    count = len(document)
    if count > limits.pages:
        raise UnreadableError(f"{count:,} pages; the limit is {limits.pages:,}: split it")
    found = pages_of(document, limits)
    pages = bodies_of(found.pages)
    text, starts = _text(pages)
    if not (found.scans or text.strip()):
        raise UnreadableError("it holds no text")
    firsts = [lines[0] for lines in starts]
    stated = document.get_metadata_dict()
    return Content(
        text,
        _stated(stated.get("Title")) or line(pdf_headings.title(pages)),
        _stated(stated.get("Author")),
        _created(stated.get("CreationDate", "")),
        firsts,
        sorted(_outline(document, text, firsts)) or list(_seen(pages, starts)),
        found.scans,
        _FONTS if found.are_unmapped else None if text.strip() else _SCAN,
    )


def bodies_of(pages: list[list[Line]]) -> list[list[Line]]:
    """The pages without headers and footers, their words whole and their characters clean."""
    texts = iter(joined([one.text for page in pages for one in page]))
    pages = [
        [one._replace(text=clean(next(texts).translate(_SPELLED))) for one in page]
        for page in pages
    ]
    own = bodies([[one.text for one in page] for page in pages])
    return [[page[number] for number in one] for page, one in zip(pages, own, strict=True)]


def _text(pages: Sequence[Sequence[Line]]) -> tuple[str, list[list[int]]]:
    """The text, and for each page the first characters of its lines, at least that of the page."""
    starts: list[list[int]] = []
    size = 0
    for page in pages:
        starts.append([size])
        for one in page:
            size += len(one.text) + 1
            starts[-1].append(size)
        # the line after the last one is no line, except on an empty page
        starts[-1] = starts[-1][: max(1, len(page))]
        size += not page
    text = "\n".join("\n".join(one.text for one in page) for page in pages)
    return text, [[min(start, len(text)) for start in lines] for lines in starts]


def _outline(document: pdfium.PdfDocument, text: str, starts: Sequence[int]) -> Iterator[Heading]:
    """The entries of the outline, each where its page's text has it or where the page begins."""
    former = 0
    for entry in islice(document.get_toc(), _MOST_HEADINGS):
        title, target = line(entry.get_title()), entry.get_dest()
        page = target.get_index() if target is not None else None
        if title is None or page is None or not 0 <= page < len(starts):
            continue
        # a page may have the words twice, and an outline has the order of the text
        begin = max(starts[page], former)
        end = starts[page + 1] if page + 1 < len(starts) else len(text)
        found = _line_of(title, text, begin, end) or _words_of(title, text, begin, end)
        start = found[0] if found else min(starts[page], len(text))
        former = found[1] if found else former
        yield Heading(start, entry.level + 1, title)


def _line_of(title: str, text: str, begin: int, end: int) -> tuple[int, int] | None:
    """The first line that is a title to the letter, perhaps after a number.

    An outline may have a thousand titles, and a pattern for each takes longer than their pages.
    """
    place = begin
    while (found := text.find(title, place, end)) >= 0:
        first = text.rfind("\n", begin, found) + 1 or begin
        last = text.find("\n", found + len(title), end)
        last = end if last < 0 else last
        before, after = text[first:found], text[found + len(title) : last]
        is_line = first > begin or not begin or text[begin - 1] == "\n"
        if is_line and not after.strip() and (not before or _NUMBER.fullmatch(before)):
            return first, found + len(title)
        place = last
    return None


def _words_of(title: str, text: str, begin: int, end: int) -> tuple[int, int] | None:
    """The first place that has the words of a title."""
    words = r"\s+".join(map(_alike, title.split()))
    # a line of its own rather than the same words in a sentence
    own = re.compile(rf"^(?:{_NUMBER.pattern})?{words}\s*?$", re.M | re.I)
    found = own.search(text, begin, end) or re.compile(words, re.I).search(text, begin, end)
    return found.span() if found else None


def _alike(word: str) -> str:
    """A pattern for a word of an outline, which may have other quotes and dashes than the text."""
    escaped = re.escape(word)
    for alike, pattern in _ALIKE.items():
        escaped = alike.sub(pattern, escaped)
    return escaped


def _seen(pages: Sequence[Sequence[Line]], starts: Sequence[Sequence[int]]) -> Iterator[Heading]:
    """The headings that the letters of the lines show."""
    for page, first, last, level in pdf_headings.headings(pages):
        words = " ".join(one.text for one in pages[page][first : last + 1])
        if title := line(words):
            yield Heading(starts[page][first], level, title)


def _stated(given: str | None) -> str | None:
    found = line(given)
    return None if found is None or _NO_TITLE.match(found) else found


def _created(date: str) -> str | None:
    found = _CREATED.match(date)
    return day("-".join([found[1], found[2] or "01", found[3] or "01"])) if found else None
