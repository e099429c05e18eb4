"""PDF: the text of each page in the order of reading, without what repeats on each page."""

import re
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import BinaryIO

import pypdfium2 as pdfium

from extraction.building import clean, day, line
from extraction.content import Content, Heading, Limits, UnreadableError
from extraction.readers import pdf_headings
from extraction.readers.pdf_layout import Layout, Line, plain
from extraction.readers.pdf_lines import bodies, joined

_SPELLED = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "\xad": ""})
# what fonts without a map to Unicode give: controls, private use, replacement
_UNMAPPED = re.compile("[\x00-\x08\x0e-\x1f\ue000-\uf8ff\ufffd]")
_MOST_UNMAPPED = 0.3
# entries of an outline
_MOST_HEADINGS = 10_000
_ALIKE = {
    re.compile("['’‘`]"): "['’‘`]",
    re.compile('["“”]'): '["“”]',
    re.compile(r"\\-|[–—]"): "[-–—]",
}
_CREATED = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")
# what programs write where the user gave no title
_NO_TITLE = re.compile(
    r"(?i)(?:\(?(?:un(?:titled|specified|known)|anonymous|title|author)\)?|microsoft \w+ - .*"
    r"|.*\.(?:docx?|pptx?|xlsx?|tex|dvi|pdf|indd))$"
)
_SCAN = "a scan without text: recognise its text first, for example with ocrmypdf"
_FONTS = "its fonts do not say which characters they show: recognise its text, as of a scan"


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text with the first character of each page, and the headings of the outline.

    A PDF without an outline has headings by the look of its letters.
    """
    document = _open(stream)
    count = len(document)
    if count > limits.pages:
        raise UnreadableError(f"{count:,} pages; the limit is {limits.pages:,}: split it")
    pages = _bodies(list(_pages(document, limits)))
    text, starts = _text(pages)
    if not text.strip():
        raise UnreadableError(_SCAN)
    firsts = [lines[0] for lines in starts]
    stated = document.get_metadata_dict()
    return Content(
        text,
        _stated(stated.get("Title")) or line(pdf_headings.title(pages)),
        _stated(stated.get("Author")),
        _created(stated.get("CreationDate", "")),
        firsts,
        sorted(_outline(document, text, firsts)) or list(_seen(pages, starts)),
    )


def _bodies(pages: list[list[Line]]) -> list[list[Line]]:
    """The pages without headers and footers, their words whole and their characters clean."""
    texts = iter(joined([one.text for page in pages for one in page]))
    pages = [
        [one._replace(text=clean(next(texts).translate(_SPELLED))) for one in page]
        for page in pages
    ]
    own = bodies([[one.text for one in page] for page in pages])
    return [page[part] for page, part in zip(pages, own, strict=True)]


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


def _open(stream: BinaryIO) -> pdfium.PdfDocument:
    content = stream.read()
    if b"%PDF-" not in content[:1024]:
        raise UnreadableError("no PDF file")
    try:
        return pdfium.PdfDocument(content)
    except pdfium.PdfiumError as error:
        if "assword" in str(error):
            raise UnreadableError("encrypted; save it without a password") from error
        raise UnreadableError("a damaged PDF file") from error


def _pages(document: pdfium.PdfDocument, limits: Limits) -> Iterator[list[Line]]:
    size = unmapped = 0
    layout = Layout()
    # places cost as much as the text: a very long document is read without them from its half on
    end = time.process_time() + limits.seconds / 2
    for number in range(len(document)):
        try:
            page = document[number]
        except pdfium.PdfiumError:
            # the others may be sound, and the numbers of the pages stay right
            yield []
            continue
        words = page.get_textpage()
        lines = layout.lines(words) if time.process_time() < end else plain(words)
        words.close()
        page.close()
        for one in lines:
            size += len(one.text)
            unmapped += len(_UNMAPPED.findall(one.text))
        if size > limits.characters:
            raise UnreadableError(f"more than {limits.characters:,} characters of text; split it")
        yield lines
    if unmapped > _MOST_UNMAPPED * size:
        raise UnreadableError(_FONTS)


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
        words = r"\s+".join(map(_alike, title.split()))
        # a line of its own rather than the same words in a sentence
        own = re.compile(rf"^(?:[A-Z]?[\d.]+\s+|[A-Z]\s+)?{words}\s*?$", re.M | re.I)
        found = own.search(text, begin, end) or re.compile(words, re.I).search(text, begin, end)
        start = found.start() if found else min(starts[page], len(text))
        former = found.end() if found else former
        yield Heading(start, entry.level + 1, title)


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
