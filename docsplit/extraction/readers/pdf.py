"""PDF: the text of each page in the order of reading, without what repeats on each page.

A page that shows its text as a picture is recognised with tesseract (Apache-2.0): the process that
forks the children loads its library and the data of its languages, so a child needs no file, and
recognises under the same bounds under which it reads.
"""

import ctypes
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_void_p
from ctypes.util import find_library
from itertools import groupby, islice, pairwise
from statistics import median
from typing import Any, BinaryIO, NamedTuple

import pypdfium2 as pdfium

from docsplit.extraction.building import bodies, clean, day, joined, line, stated
from docsplit.extraction.content import Content, Heading, Limits, UnreadableError
from docsplit.extraction.readers.pdf_layout import Line, opened, pages_of

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
        for one in page:
            letters[_style(one)] += len(one.text)
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
        for one in page:
            letters[_style(one).size] += len(one.text)
    body = max(letters, key=lambda size: letters[size], default=0.0)
    sizes = [_style(one).size for one in first if _LETTERS.search(one.text)]
    largest = max(sizes, default=0.0)
    if not body or largest < _TITLE * body:
        return None
    for size, group in groupby(first, lambda one: _style(one).size):
        lines = list(group)
        for begin, end in pairwise([*_begins(lines), len(lines)]):
            text = " ".join(one.text for one in lines[begin:end])
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
            text = " ".join(one.text for one in lines[begin:end])
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


# how much larger than most lines of a page a watermark is
_MARKED = 2
_SPELLED = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl"})
# entries of an outline
_MOST_HEADINGS = 10_000
_ALIKE = str.maketrans("‘’`“”–—", "'''\"\"--")
# lines of a title
_MOST_LONG = 4
# before a title on its line
_NUMBER = re.compile(r"(?i)(?:(?:[A-Z]?[\d.]+|[A-Z])\s+)?")
_CREATED = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")
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
    held = document.get_metadata_dict()
    return Content(
        text,
        stated(held.get("Title")) or line(title(pages)),
        stated(held.get("Author")),
        _created(held.get("CreationDate", "")),
        [lines[0] for lines in starts],
        sorted(_outline(document, pages, starts)) or list(_seen(pages, starts)),
        found.scans,
        _FONTS if found.are_unmapped else None if text.strip() else _SCAN,
    )


def bodies_of(pages: list[list[Line]]) -> list[list[Line]]:
    """The pages without headers and footers, their words whole and their characters clean.

    A stamp at the margin of every page, or a watermark, stays once.
    """
    texts = iter(joined([one.text for page in pages for one in page]))
    pages = [
        [one._replace(text=clean(next(texts).translate(_SPELLED))) for one in page]
        for page in pages
    ]
    marks = _marks(pages)
    pages = [
        [
            one._replace(turned=True, size=0.0, bold=False) if one.text in marks else one
            for one in page
        ]
        for page in pages
    ]
    flows = [[one for one in page if not one.turned] for page in pages]
    own = bodies([[one.text for one in page] for page in flows])
    seen: set[str] = set()
    found: list[list[Line]] = []
    for page, flow, numbers in zip(pages, flows, own, strict=True):
        aside = [one for one in page if one.turned and one.text not in seen]
        seen.update(one.text for one in aside)
        found.append([*(flow[number] for number in numbers), *aside])
    return found


def _marks(pages: Sequence[Sequence[Line]]) -> set[str]:
    """Large lines that stand across others on most pages, as watermarks do that are not turned."""
    counted: Counter[str] = Counter()
    for page in pages:
        least = _MARKED * median(one.size for one in page) if page else 0.0
        for one in [one for one in page if one.size >= least > 0]:
            if any(one.bottom < other.bottom < one.bottom + one.size / 2 for other in page):
                counted[one.text] += 1
    return {text for text, count in counted.items() if count > max(1, len(pages) / 2)}


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


def _outline(
    document: pdfium.PdfDocument, pages: Sequence[Sequence[Line]], starts: Sequence[Sequence[int]]
) -> Iterator[Heading]:
    """The entries of the outline, each where its page's text has it or where the page begins."""
    words = [[_words(one.text) for one in page] for page in pages]
    # a page may have the words twice, and an outline has the order of the text
    former = -1
    for entry in islice(document.get_toc(), _MOST_HEADINGS):
        title, target = line(entry.get_title()), entry.get_dest()
        page = target.get_index() if target is not None else None
        if title is None or page is None or not 0 <= page < len(starts):
            continue
        rest = next((n for n, start in enumerate(starts[page]) if start > former), len(words[page]))
        found = _line_of(_words(title), words[page], rest)
        if found is not None:
            former = starts[page][found]
        yield Heading(starts[page][found or 0], entry.level + 1, title)


def _words(text: str) -> str:
    """A text with blanks, quotes and dashes of one kind."""
    return " ".join(text.replace("\\-", "-").translate(_ALIKE).split())


def _line_of(title: str, lines: Sequence[str], first: int) -> int | None:
    """The first line that is a title, perhaps with a number before it, or that has its words.

    A title may take several lines. One to the letter goes before one with other capitals.
    """
    for fold in (str, str.casefold):
        wanted = fold(title)
        for number in range(first, len(lines)):
            for end in range(number + 1, number + 1 + _MOST_LONG):
                text = fold(" ".join(lines[number:end]))
                before = text.removesuffix(wanted)
                is_own_line = before.rstrip() != fold(lines[number])
                if before != text and is_own_line and _NUMBER.fullmatch(before):
                    return number
    for number in range(first, len(lines)):
        near = lines[number : number + _MOST_LONG]
        if wanted in " ".join(near).casefold() and wanted not in " ".join(near[1:]).casefold():
            return number
    return None


def _seen(pages: Sequence[Sequence[Line]], starts: Sequence[Sequence[int]]) -> Iterator[Heading]:
    """The headings that the letters of the lines show."""
    for page, first, last, level in headings(pages):
        words = " ".join(one.text for one in pages[page][first : last + 1])
        if title := line(words):
            yield Heading(starts[page][first], level, title)


def _created(date: str) -> str | None:
    found = _CREATED.match(date)
    return day("-".join([found[1], found[2] or "01", found[3] or "01"])) if found else None


# dots an inch, as tesseract's data was trained, and of a page at most
_DOTS, _MOST_PIXELS = 300, 25_000_000
_INCH = 72
# mean confidence of a page, in percent: lower, it may be turned; and what is no text
_DOUBTFUL, _NO_TEXT = 70, 30
# languages that "auto" takes: each takes about as much time as the first
_MOST_LANGUAGES = 3
_USUAL, _ORIENTATION = "eng", "osd"
_NO_LANGUAGES = {_ORIENTATION, "equ"}
# finds columns and paragraphs, without the data for the orientation
_LAYOUT = 3


class AbsentError(Exception):
    """No text can be recognised here; the message says why."""


class Recogniser:
    """Tesseract with the data of some languages in memory.

    Args:
        languages: as tesseract names them, joined by "+", or "auto".

    Raises:
        AbsentError: tesseract or a language is not installed.
    """

    def __init__(self, languages: str) -> None:
        # threads would need a system call that children do not have
        os.environ["OMP_THREAD_LIMIT"] = "1"
        self._library = _library()
        named = self._installed() if languages == "auto" else languages
        self._text = self._opened(named)
        if self._text is None:
            raise AbsentError(f"tesseract has no data of the languages {named!r}")
        self._library.TessBaseAPISetPageSegMode(self._text, _LAYOUT)
        self._sides = self._opened(_ORIENTATION)

    def text(self, page: pdfium.PdfPage) -> str:
        """The text that a page shows as a picture; "" if it shows none.

        Tesseract reads upright pages. Another one is turned if its orientation is known.
        """
        found, confidence = self._read(page, 0)
        if confidence < _DOUBTFUL and (turn := self._turn(page)):
            turned = self._read(page, turn)
            found, confidence = max((found, confidence), turned, key=lambda read: read[1])
        return found if confidence >= _NO_TEXT else ""

    def _read(self, page: pdfium.PdfPage, turn: int) -> tuple[str, int]:
        """Text and mean confidence of a page, turned clockwise by some degrees."""
        self._show(self._text, page, turn)
        found = self._library.TessBaseAPIGetUTF8Text(self._text)
        text = ctypes.string_at(found).decode("utf-8", "replace") if found else ""
        return text, self._library.TessBaseAPIMeanTextConf(self._text) if text.strip() else 0

    def _turn(self, page: pdfium.PdfPage) -> int:
        """The degrees by which the page must be turned clockwise."""
        if self._sides is None:
            return 0
        self._show(self._sides, page, 0)
        degrees, script = c_int(), c_char_p()
        sure, sure_of_script = c_float(), c_float()
        known = self._library.TessBaseAPIDetectOrientationScript(
            self._sides, byref(degrees), byref(sure), byref(script), byref(sure_of_script)
        )
        return (360 - degrees.value) % 360 if known else 0

    def _show(self, handle: Any, page: pdfium.PdfPage, turn: int) -> None:
        width, height = page.get_size()
        scale = min(_DOTS / _INCH, (_MOST_PIXELS / max(1, width * height)) ** 0.5)
        picture = page.render(scale=scale, rotation=turn, grayscale=True)
        pixels = bytes(picture.buffer)
        size = picture.width, picture.height, 1, picture.stride
        # tesseract copies the pixels
        self._library.TessBaseAPISetImage(handle, pixels, *size)
        self._library.TessBaseAPISetSourceResolution(handle, round(scale * _INCH))
        picture.close()

    def _opened(self, languages: str) -> Any:
        handle = c_void_p(self._library.TessBaseAPICreate())
        failed = self._library.TessBaseAPIInit3(handle, None, languages.encode())
        return None if failed else handle

    def _installed(self) -> str:
        """All installed languages if they are few, else the usual one."""
        handle = self._opened(_USUAL) or self._opened(_ORIENTATION)
        if handle is None:
            raise AbsentError("tesseract has no data of any language")
        names = self._library.TessBaseAPIGetAvailableLanguagesAsVector(handle)
        found: list[str] = []
        while names[len(found)]:
            found.append(names[len(found)].decode())
        self._library.TessBaseAPIDelete(handle)
        found = sorted(set(found) - _NO_LANGUAGES, key=lambda name: (name != _USUAL, name))
        # scripts such as "script/Latin" repeat languages
        found = [name for name in found if "/" not in name]
        if not found:
            raise AbsentError("tesseract has no data of any language")
        return "+".join(found if len(found) <= _MOST_LANGUAGES else found[:1])


def _library() -> Any:
    name = find_library("tesseract")
    try:
        library = ctypes.CDLL(name or "libtesseract.so.5")
    except OSError:
        raise AbsentError("tesseract is not installed") from None
    # handles are wrapped, or they would lose their upper half
    for name in ("Create", "GetUTF8Text"):
        getattr(library, f"TessBaseAPI{name}").restype = c_void_p
    library.TessBaseAPIGetAvailableLanguagesAsVector.restype = POINTER(c_char_p)
    return library
