"""The lines of a PDF's page in the order of reading: cells of tables apart by tabs."""

import ctypes
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from docsplit.extraction.building import raised
from docsplit.extraction.pdf.columns import Cell, Row, ordered
from docsplit.extraction.pdf.entries import Box, Entry, placed
from docsplit.extraction.pdf.lines import HYPHEN

_WORD = re.compile(f"[^ \r\n{HYPHEN}]+|\r\n|{HYPHEN}")
_ENDS = ("\r\n", HYPHEN)
# a blank wider than this part of the letters' size stands between cells or columns
_WIDE = 1.0
_BOLD = re.compile(rb"(?i)bold|black|heavy|demi|^[A-Z]{6}\+(?:CM|SF|EC)B|BX\d|^(?:CM|SF|EC)B")
_BOLD_WEIGHT = 600
_NAME_BYTES = 64
# what leads the eye to the page number in a table of contents
_LEADERS = re.compile(r"[ \t]?(?:\.[ \t]?){5,}(?=\w{0,6}$)")
_LEAST_DOTS = 5
# words of a page that say how it is turned
_SAMPLE = 15
# numbers behind a letter, a digit or a mark after one; a raised one begins higher by this part of
# the size of the letter before, and is smaller than this part of it
_BEHIND = re.compile(r"(?<=\w)[.,;:!?)\]”’\"']?(\d{1,4})(?!\w)")
_RAISED, _SMALL = 0.1, 0.9


class Line(NamedTuple):
    """A line of a page.

    Attributes:
        text: cells apart by tabs; ends with ``HYPHEN`` if the next line goes on with its last word.
        size: of its longest word's letters in points; 0 if it is not known.
        bold: whether its first and its longest word are.
        bottom: of its first letter, in points from a line below all, as the page is read.
    """

    text: str
    size: float = 0.0
    bold: bool = False
    bottom: float = 0.0


class Turn(NamedTuple):
    """Which way lines run: the sine and the cosine of their angle to the page's lower edge."""

    sine: int = 0
    cosine: int = 1

    def box(self, box: Box) -> Box:
        """A box as a reader of these lines sees it."""
        corners = ((box.left, box.bottom), (box.right, box.top))
        along = [self.cosine * x + self.sine * y for x, y in corners]
        across = [self.cosine * y - self.sine * x for x, y in corners]
        return Box(min(along), min(across), max(along), max(across))


class Layout:
    """Reads the lines of pages; holds the memory that PDFium writes its answers to."""

    def __init__(self) -> None:
        self._box = pdfium_c.FS_RECTF()
        self._matrix = pdfium_c.FS_MATRIX()
        self._name = ctypes.create_string_buffer(_NAME_BYTES)
        self._flags = ctypes.c_int()
        self._turn = Turn()
        self._at_box, self._at_matrix = ctypes.byref(self._box), ctypes.byref(self._matrix)
        self._at_flags = ctypes.byref(self._flags)

    def lines(self, words: pdfium.PdfTextPage, entries: Sequence[Entry] = ()) -> list[Line]:
        """The lines of a page in the order of reading; divided words are one line still.

        Args:
            words: of the page.
            entries: what is typed into the page.
        """
        text: str = words.get_text_range()
        if len(text) != words.count_chars():
            # places in the text are not those of the letters
            return plain(words, entries)
        self._turn = self._turned(words.raw, text)
        text = self._lifted(words.raw, text)
        rows = self._rows(words.raw, text)
        seen = [one._replace(box=self._turn.box(one.box)) for one in entries]
        return _whole(ordered(placed(rows, seen) if seen else rows))

    def _rows(self, page: object, text: str) -> list[Row]:
        rows: list[Row] = []
        line: list[tuple[int, int]] = []
        for found in _WORD.finditer(text):
            if found[0] in _ENDS:
                row = self._row(page, text, line)
                rows.append(_divided(row) if found[0] == HYPHEN else row)
                line = []
            else:
                line.append(found.span())
        return [*rows, self._row(page, text, line)]

    def _row(self, page: object, text: str, words: list[tuple[int, int]]) -> Row:
        if not words:
            return Row([], 0.0, False, 0.0)
        longest = max(words, key=lambda word: word[1] - word[0])[0]
        size = self._size(page, longest)
        cells: list[Cell] = []
        first, start, right, bottom = 0, 0.0, 0.0, 0.0
        for number, (begin, end) in enumerate(words):
            left, _, low = self._edges(page, begin)
            if number and left - right > _WIDE * size:
                cells.append(Cell(text[words[first][0] : words[number - 1][1]], start, right))
                first = number
            if number == first:
                start, bottom = left, bottom or low
            right = self._edges(page, end - 1)[1]
        cells.append(Cell(text[words[first][0] : words[-1][1]], start, right))
        bold = self._is_bold(page, words[0][0]) and self._is_bold(page, longest)
        return Row(cells, size, bold, bottom)

    def _edges(self, page: object, place: int) -> tuple[float, float, float]:
        """Left, right and bottom of a letter, as the page is read."""
        pdfium_c.FPDFText_GetLooseCharBox(page, place, self._at_box)
        box = self._box
        if self._turn.cosine == 1:
            return box.left, box.right, box.bottom
        left, bottom, right, _ = self._turn.box(Box(box.left, box.bottom, box.right, box.top))
        return left, right, bottom

    def _lifted(self, page: object, text: str) -> str:
        """The text with raised numbers in Unicode's signs, as in the readers of other kinds."""
        for found in _BEHIND.finditer(text):
            base, (first, end) = found.start() - 1, found.span(1)
            low = self._edges(page, base)[2]
            # most numbers are not raised, and one look at the last digit shows it
            if self._edges(page, end - 1)[2] <= low:
                continue
            size, place = self._size(page, base), end
            while place > first and self._edges(page, place - 1)[2] > low + _RAISED * size:
                place -= 1
            if place < end and self._size(page, place) < _SMALL * size:
                text = text[:place] + raised(text[place:end]) + text[end:]
        return text

    def _turned(self, page: object, text: str) -> Turn:
        """The way in which most of a page's lines run."""
        places = [found.start() for found in _WORD.finditer(text) if found[0] not in _ENDS]
        ways = Counter(self._way(page, place) for place in places[:: 1 + len(places) // _SAMPLE])
        return max(ways, key=lambda way: ways[way], default=Turn())

    def _way(self, page: object, place: int) -> Turn:
        if not pdfium_c.FPDFText_GetMatrix(page, place, self._at_matrix):
            return Turn()
        a, b, d = self._matrix.a, self._matrix.b, self._matrix.d
        if abs(b) > abs(a):
            return Turn(1 if b > 0 else -1, 0)
        return Turn(0, -1 if a < 0 and d < 0 else 1)

    def _size(self, page: object, place: int) -> float:
        size: float = pdfium_c.FPDFText_GetFontSize(page, place)
        if pdfium_c.FPDFText_GetMatrix(page, place, self._at_matrix):
            size *= (self._matrix.c**2 + self._matrix.d**2) ** 0.5
        return size

    def _is_bold(self, page: object, place: int) -> bool:
        if pdfium_c.FPDFText_GetFontWeight(page, place) >= _BOLD_WEIGHT:
            return True
        self._name[0] = b"\0"
        pdfium_c.FPDFText_GetFontInfo(page, place, self._name, _NAME_BYTES, self._at_flags)
        return _BOLD.search(self._name.value) is not None


def plain(words: pdfium.PdfTextPage, entries: Sequence[Entry] = ()) -> list[Line]:
    """The lines of a page as PDFium orders them, without places, and then its entries."""
    text: str = words.get_text_range()
    texts = [*text.split("\r\n"), *(one.text for one in entries)]
    return [Line(line) for line in texts if line.strip()]


def _divided(row: Row) -> Row:
    *cells, last = row.cells or [Cell("", 0.0, 0.0)]
    return row._replace(cells=[*cells, last._replace(text=last.text + HYPHEN)])


def _whole(rows: Sequence[Row]) -> list[Line]:
    """Lines of text; one that ends within a word goes on with the next."""
    lines: list[Line] = []
    for row in rows:
        text = "\t".join(cell.text for cell in row.cells)
        if text.count(".") >= _LEAST_DOTS:
            text = _LEADERS.sub("\t", text)
        if not text.strip():
            continue
        if lines and lines[-1].text.endswith(HYPHEN):
            lines[-1] = lines[-1]._replace(text=lines[-1].text + text)
        else:
            lines.append(Line(text, row.size, row.bold, row.bottom))
    return lines
