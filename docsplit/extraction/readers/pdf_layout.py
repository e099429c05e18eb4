"""TODO."""

import ctypes
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from statistics import median
from typing import BinaryIO, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from docsplit.extraction.building import HYPHEN, raised
from docsplit.extraction.content import Limits, UnreadableError

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
    """A line of a page; see ``Line``."""

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


_UNSEEN = pdfium_c.FPDF_ANNOT_FLAG_HIDDEN | pdfium_c.FPDF_ANNOT_FLAG_NOVIEW
_FIELDS = {
    pdfium_c.FPDF_FORMFIELD_TEXTFIELD,
    pdfium_c.FPDF_FORMFIELD_COMBOBOX,
    pdfium_c.FPDF_FORMFIELD_LISTBOX,
}
_BOXES = {pdfium_c.FPDF_FORMFIELD_CHECKBOX, pdfium_c.FPDF_FORMFIELD_RADIOBUTTON}
# as forms of Word have them
_TICKED, _EMPTY = "☒", "☐"
_PASSWORD = 1 << 13


class Box(NamedTuple):
    """The edges of a box in points."""

    left: float
    bottom: float
    right: float
    top: float


class Entry(NamedTuple):
    """A text and its place on the page."""

    text: str
    box: Box


def entries(page: pdfium.PdfPage) -> list[Entry]:
    """The entries of a page whose document's forms are open; passwords and notes are none.

    PDFium's text of a page lacks them.
    """
    found: list[Entry] = []
    for number in range(pdfium_c.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium_c.FPDFPage_GetAnnot(page, number)
        if annotation:
            found += _entry(page, annotation)
            pdfium_c.FPDFPage_CloseAnnot(annotation)
    return found


def _entry(page: pdfium.PdfPage, annotation: object) -> Iterator[Entry]:
    kind = pdfium_c.FPDFAnnot_GetSubtype(annotation)
    if pdfium_c.FPDFAnnot_GetFlags(annotation) & _UNSEEN:
        return
    text = ""
    if kind == pdfium_c.FPDF_ANNOT_FREETEXT:
        text = _string(
            lambda *given: pdfium_c.FPDFAnnot_GetStringValue(annotation, b"Contents", *given)
        )
    elif kind == pdfium_c.FPDF_ANNOT_WIDGET and page.formenv:
        form = page.formenv
        field = pdfium_c.FPDFAnnot_GetFormFieldType(form, annotation)
        if field in _BOXES:
            text = _TICKED if pdfium_c.FPDFAnnot_IsChecked(form, annotation) else _EMPTY
        elif (
            field in _FIELDS
            and not pdfium_c.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD
        ):
            text = _string(
                lambda *given: pdfium_c.FPDFAnnot_GetFormFieldValue(form, annotation, *given)
            )
    edges = pdfium_c.FS_RECTF()
    text = " ".join(text.split())
    if text and pdfium_c.FPDFAnnot_GetRect(annotation, ctypes.byref(edges)):
        yield Entry(text, Box(edges.left, edges.bottom, edges.right, edges.top))


def _string(get: Callable[..., int]) -> str:
    """A text that PDFium writes, with a zero after it; it says first how many bytes that takes."""
    size = get(None, 0)
    buffer = ctypes.create_string_buffer(size)
    get(ctypes.cast(buffer, ctypes.POINTER(pdfium_c.FPDF_WCHAR)), size)
    return buffer.raw.decode("utf-16-le", "replace").rstrip("\0")


def placed(rows: Sequence[Row], found: Sequence[Entry]) -> list[Row]:
    """The rows of a page with its entries: each in the row at its height, or below the one above.

    The boxes are those that a reader of the rows sees.
    """
    whole = list(rows)
    for text, box in sorted(found, key=lambda one: (-one.box.top, one.box.left)):
        cell = Cell(text, box.left, box.right)
        level = [
            number
            for number, row in enumerate(whole)
            if row.cells and box.bottom <= row.bottom + row.size / 2 <= box.top
        ]
        if level:
            # columns have several
            near = min(level, key=lambda number: _distance(whole[number], box))
            cells = sorted([*whole[near].cells, cell], key=lambda cell: cell.left)
            whole[near] = whole[near]._replace(cells=cells)
            continue
        above = [number for number, row in enumerate(whole) if row.cells and row.bottom > box.top]
        place = 1 + min(above, key=lambda number: whole[number].bottom) if above else 0
        whole.insert(place, Row([cell], 0.0, False, box.bottom))
    return whole


def _distance(row: Row, box: Box) -> float:
    return min(abs(box.left - cell.right) for cell in row.cells)


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


# what fonts without a map to Unicode give: controls, private use, replacement
_UNMAPPED = re.compile("[\x00-\x08\x0e-\x1f\ue000-\uf8ff\ufffd]")
_MOST_UNMAPPED = 0.3
# a page with fewer letters is a scan if images cover so much of it; a stamp or a number may be text
_FEW, _COVERED, _MOST_IMAGES = 100, 0.5, 1000


class Pages(NamedTuple):
    """What the pages of a document hold.

    Attributes:
        pages: lines of each page, headers and footers among them; none where fonts have no map.
        scans: numbers, from 0, of pages that show text as a picture or without a map.
        are_unmapped: whether many of all characters have no map.
    """

    pages: list[list[Line]]
    scans: list[int]
    are_unmapped: bool


def opened(stream: BinaryIO) -> pdfium.PdfDocument:
    """A document.

    Raises:
        UnreadableError: another kind of file, an encrypted or a damaged one.
    """
    content = stream.read()
    if b"%PDF-" not in content[:1024]:
        raise UnreadableError("no PDF file")
    try:
        document = pdfium.PdfDocument(content)
    except pdfium.PdfiumError as error:
        if "assword" in str(error):
            raise UnreadableError("encrypted; save it without a password") from error
        raise UnreadableError("a damaged PDF file") from error
    # PDFium tells and draws the values of fields only then
    with suppress(pdfium.PdfiumError):
        document.init_forms()
    return document


def pages_of(document: pdfium.PdfDocument, limits: Limits) -> Pages:
    """The pages of a document.

    Raises:
        UnreadableError: too many characters.
    """
    found: list[list[Line]] = []
    scans: list[int] = []
    size = unmapped = 0
    layout = Layout()
    # places cost as much as the text: a very long document is read without them from its half on
    end = time.process_time() + limits.seconds / 2
    for number in range(len(document)):
        try:
            page = document[number]
        except pdfium.PdfiumError:
            # the others may be sound, and the numbers of the pages stay right
            found.append([])
            continue
        words = page.get_textpage()
        read = layout.lines if time.process_time() < end else plain
        typed = entries(page)
        lines = read(words, typed)
        words.close()
        own = sum(len(one.text) for one in lines)
        strange = sum(len(_UNMAPPED.findall(one.text)) for one in lines)
        size += own
        # a scan may be filled in
        own -= sum(len(one.text) for one in typed)
        unmapped += strange
        if size > limits.characters:
            raise UnreadableError(f"more than {limits.characters:,} characters of text; split it")
        if strange > _MOST_UNMAPPED * own:
            lines = []
            scans.append(number)
        elif own < _FEW and _is_picture(page, own):
            scans.append(number)
        page.close()
        found.append(lines)
    return Pages(found, scans, unmapped > _MOST_UNMAPPED * size)


def _is_picture(page: pdfium.PdfPage, letters: int) -> bool:
    """Whether a page may show text as a picture: in an image, or in curves if it has no letters."""
    if letters <= 0:
        return next(page.get_objects(max_depth=1), None) is not None
    width, height = page.get_size()
    images = page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE])
    edges = (image.get_bounds() for image in islice(images, _MOST_IMAGES))
    covered = sum((right - left) * (top - bottom) for left, bottom, right, top in edges)
    return bool(covered > _COVERED * width * height)
