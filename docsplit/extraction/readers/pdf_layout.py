"""The lines of a PDF's pages in the order of reading, with cells of tables apart by tabs.

PDFium says where letters stand and which fonts they have; what columns, cells, raised numbers and
turned lines are is decided here.
"""

import ctypes
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, islice, pairwise
from statistics import median
from typing import BinaryIO, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from docsplit.extraction.building import HYPHEN, raised
from docsplit.extraction.content import Limits, UnreadableError

# stand in a page's text for a letter without a character, and for the second half of a large one
_NONE, _HALF = "\0", "\ufdd3"
_WORD = re.compile(f"[^ \r\n{_NONE}{_HALF}{HYPHEN}]+|\r\n|{HYPHEN}")
_ENDS = ("\r\n", HYPHEN)
# a hyphen that PDFium does not mark, and what takes the place of the line's end
_HYPHEN_END, _MARKED_END = "\u2010\r\n", HYPHEN + _HALF * 2
# a blank wider than this part of the letters' size stands between cells or columns, a less wide one
# between words; lines at one height differ by less, and another line by more
_WIDE, _BLANK, _LEVEL, _LOWER = 1.0, 0.12, 0.3, 0.8
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
_LIFT, _SMALL = 0.1, 0.9
# accents that old TeX fonts draw over letters, and those that join a letter
_ACCENTS = dict(zip("¨´`ˆ˜ˇ˘˚¯˙˝¸˛", map(chr, (
    0x308, 0x301, 0x300, 0x302, 0x303, 0x30C, 0x306, 0x30A, 0x304, 0x307, 0x30B, 0x327, 0x328)),
    strict=True))  # fmt: skip
_ACCENT = re.compile("[¨´ˆ˜ˇ˘˚¯˙˝¸˛]|(?<=[a-z])`(?=[aeiou])")
_DOTLESS = {"ı": "i", "ȷ": "j"}
_NEAR = 3

# lines of a column; with fewer its order could be that of a table
_LEAST_LINES = 5
# characters of most lines in a column of prose, and the share of lines that go on in the middle
_LEAST_LENGTH, _LEAST_WITHIN = 15, 0.4
# a blank between the lines of a column is lower, in parts of the letters' size
_APART = 2.5
_DIVIDED = re.compile(r"(?<=\w)-$")
# lines of a page that begin with their own number
_LEAST_NUMBERED, _MOST_NUMBERED = 10, 0.8

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

# what fonts without a map to Unicode give: controls, private use, replacement
_UNMAPPED = re.compile("[\x00-\x08\x0e-\x1f\ue000-\uf8ff\ufffd]")
_MOST_UNMAPPED = 0.3
# PDFium also flags fonts whose letters it knows by their names. In every language in Latin letters
# the common ones are more than this share; in shifted codes they are not
_LETTERS, _COMMON = re.compile("[A-Za-z]"), re.compile("[etaoinsrlETAOINSRL]")
_LEAST_COMMON, _LEAST_LETTERS = 0.45, 12
# a page with fewer letters is a scan if images cover so much of it; a stamp or a number may be text
_FEW, _COVERED, _MOST_OBJECTS = 100, 0.5, 1000
# a page with fewer letters than this part of those that its text takes the room of
_MISSING = 0.2


class Line(NamedTuple):
    """A line of a page.

    Attributes:
        text: cells apart by tabs; ends with ``HYPHEN`` if the next line goes on with its last word.
        size: of its longest word's letters in points; 0 if it is not known.
        bold: whether all of its words are.
        bottom: of its first letter, in points from a line below all, as the page is read.
        turned: whether it runs another way than most lines, as a stamp at the margin.
    """

    text: str
    size: float = 0.0
    bold: bool = False
    bottom: float = 0.0
    turned: bool = False


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
    turned: bool = False


class Box(NamedTuple):
    """The edges of a box in points."""

    left: float
    bottom: float
    right: float
    top: float


class Entry(NamedTuple):
    """A text that is typed into a page, and its place on it."""

    text: str
    box: Box


class Turn(NamedTuple):
    """Which way lines run: the sine and the cosine of their angle to the page's lower edge.

    Both are 0 for lines that run aslant.
    """

    sine: int = 0
    cosine: int = 1

    def box(self, box: Box) -> Box:
        """A box as a reader of these lines sees it."""
        corners = ((box.left, box.bottom), (box.right, box.top))
        along = [self.cosine * x + self.sine * y for x, y in corners]
        across = [self.cosine * y - self.sine * x for x, y in corners]
        return Box(min(along), min(across), max(along), max(across))


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
        typed = entries(page)
        layout.strange = 0
        lines = (layout.lines if time.process_time() < end else plain)(words, typed)
        words.close()
        own = sum(len(one.text) for one in lines)
        strange = layout.strange + sum(len(_UNMAPPED.findall(one.text)) for one in lines)
        size += own
        # a scan may be filled in
        own -= sum(len(one.text) for one in typed)
        is_scan = False
        if own < _FEW:
            drawn, is_scan = _drawn(page, own)
            if own < _MISSING * drawn and drawn > _FEW:
                size += drawn
                strange += drawn
        unmapped += strange
        if size > limits.characters:
            raise UnreadableError(f"more than {limits.characters:,} characters of text; split it")
        if strange > _MOST_UNMAPPED * own:
            lines = []
        if is_scan or strange > _MOST_UNMAPPED * own:
            scans.append(number)
        page.close()
        found.append(lines)
    return Pages(found, scans, unmapped > _MOST_UNMAPPED * size)


def _drawn(page: pdfium.PdfPage, letters: int) -> tuple[int, bool]:
    """About how many letters the text of a page takes the room of, and whether it is a picture.

    A page may show text as a picture in images, or in curves if it has no letters.
    """
    if letters <= 0 and next(page.get_objects(max_depth=1), None) is None:
        return 0, False
    width, height = page.get_size()
    kinds = [pdfium_c.FPDF_PAGEOBJ_IMAGE, pdfium_c.FPDF_PAGEOBJ_TEXT]
    covered = drawn = 0.0
    for one in islice(page.get_objects(filter=kinds), _MOST_OBJECTS):
        left, bottom, right, top = one.get_bounds()
        if one.type == pdfium_c.FPDF_PAGEOBJ_IMAGE:
            covered += (right - left) * (top - bottom)
        elif top > bottom:
            drawn += min(2 * (right - left) / (top - bottom), 1000)
    return int(drawn), letters <= 0 or covered > _COVERED * width * height


class Layout:
    """Reads the lines of pages; holds the memory that PDFium writes its answers to.

    Attributes:
        strange: letters so far whose fonts have no map to Unicode and that make no words.
    """

    def __init__(self) -> None:
        self.strange = 0
        self._box = pdfium_c.FS_RECTF()
        self._matrix = pdfium_c.FS_MATRIX()
        self._name = ctypes.create_string_buffer(_NAME_BYTES)
        self._flags = ctypes.c_int()
        self._turn = Turn()
        self._at_box, self._at_matrix = ctypes.byref(self._box), ctypes.byref(self._matrix)
        self._at_flags = ctypes.byref(self._flags)

    def lines(self, words: pdfium.PdfTextPage, entries: Sequence[Entry] = ()) -> list[Line]:
        """The lines of a page in the order of reading; divided words are one line still.

        Lines that run another way come last.

        Args:
            words: of the page.
            entries: what is typed into the page.
        """
        page = words.raw
        text = _text_of(words)
        if text is None:
            return plain(words, entries)
        text = text.replace(_HYPHEN_END, _MARKED_END)
        places = [found.span() for found in _WORD.finditer(text) if found[0] not in _ENDS]
        self.strange += self._garbled(page, text, places)
        ways = Counter(self._way(page, n) for n, _ in places[:: 1 + len(places) // _SAMPLE])
        self._turn = max(ways, key=lambda way: ways[way], default=Turn())
        text = self._accented(page, self._lifted(page, text))
        rows = self._rows(page, text)
        seen = [one._replace(box=self._turn.box(one.box)) for one in entries]
        upright = _level([one for one in rows if not one.turned])
        upright = _unnumbered(ordered(placed(upright, seen) if seen else upright))
        aside = [one._replace(turned=True, size=0.0, bold=False) for one in rows if one.turned]
        return _whole(upright) + _whole(aside)

    def _rows(self, page: object, text: str) -> list[Row]:
        rows: list[Row] = []
        line: list[tuple[int, int]] = []
        for found in _WORD.finditer(text):
            if found[0] in _ENDS:
                rows += self._row(page, text, line)
                if found[0] == HYPHEN:
                    rows[-1] = _divided(rows[-1])
                line = []
            else:
                line.append(found.span())
        return rows + self._row(page, text, line)

    def _row(self, page: object, text: str, words: list[tuple[int, int]]) -> list[Row]:
        """The row of a line's words; several where PDFium does not see that a line ends."""
        if not words:
            return [Row([], 0.0, False, 0.0)]
        longest = max(words, key=lambda word: word[1] - word[0])[0]
        if self._way(page, longest) != self._turn:
            return [Row([Cell(text[words[0][0] : words[-1][1]], 0.0, 0.0)], 0.0, False, 0.0, True)]
        size = self._size(page, longest)
        cells: list[Cell] = []
        rest: list[Row] = []
        first, start, right, bottom, former = 0, 0.0, 0.0, 0.0, 0.0
        for number, (begin, end) in enumerate(words):
            left, edge, low = self._edges(page, begin)
            if number and left < right and abs(low - former) > _LOWER * size:
                rest = self._row(page, text, words[number:])
                words = words[:number]
                break
            if number and left - right > _WIDE * size:
                cells.append(Cell(text[words[first][0] : words[number - 1][1]], start, right))
                first = number
            if number == first:
                start, bottom = left, bottom or low
            former = low
            right = edge if end - begin == 1 else self._edges(page, end - 1)[1]
        cells.append(Cell(text[words[first][0] : words[-1][1]], start, right))
        # a paragraph may begin with bold words; a line ends with others then
        places = {words[0][0], words[-1][0], *([] if rest else [longest])}
        bold = all(self._is_bold(page, one) for one in places)
        return [Row(cells, size, bold, bottom), *rest]

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
            while place > first and self._edges(page, place - 1)[2] > low + _LIFT * size:
                place -= 1
            if place < end and self._size(page, place) < _SMALL * size:
                text = text[:place] + raised(text[place:end]) + text[end:]
        return text

    def _accented(self, page: object, text: str) -> str:
        """The text with the accents that stand over or under a letter as a part of it."""
        for found in _ACCENT.finditer(text):
            place = found.start()
            left, right, _ = self._edges(page, place)
            middle = (left + right) / 2
            for other in sorted(
                range(max(0, place - _NEAR), min(len(text), place + _NEAR + 1)),
                key=lambda other: (abs(other - place), -other),
            ):
                letter = _DOTLESS.get(text[other], text[other])
                if not letter.isalpha():
                    continue
                whole = unicodedata.normalize("NFC", letter + _ACCENTS[found[0]])
                begin, end, _ = self._edges(page, other)
                if len(whole) == 1 and begin < middle < end:
                    letters = list(text)
                    letters[other], letters[place] = whole, _HALF
                    text = "".join(letters)
                    break
        return text

    def _garbled(self, page: object, text: str, places: Sequence[tuple[int, int]]) -> int:
        """The letters of words whose font has no map to Unicode, if they make no language."""
        flagged = "".join(
            text[first:end]
            for first, end in places
            if pdfium_c.FPDFText_HasUnicodeMapError(page, first) == 1
        )
        letters = len(_LETTERS.findall(flagged))
        common = len(_COMMON.findall(flagged))
        is_garbled = letters >= _LEAST_LETTERS and common < _LEAST_COMMON * letters
        return len(flagged) if is_garbled else 0

    def _way(self, page: object, place: int) -> Turn:
        if not pdfium_c.FPDFText_GetMatrix(page, place, self._at_matrix):
            return Turn()
        a, b, d = self._matrix.a, self._matrix.b, self._matrix.d
        if 4 * min(abs(a), abs(b)) > max(abs(a), abs(b)):
            return Turn(0, 0)
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


def _text_of(words: pdfium.PdfTextPage) -> str | None:
    """The text of a page, in which each character has the place of its letter; None if unknown.

    PDFium's text lacks letters without a character, and counts large characters as two.
    """
    text: str = words.get_text_range()
    count = words.count_chars()
    if len(text) == count:
        return text
    letters = [_NONE] * count
    unit = 0
    for character in text:
        place = pdfium_c.FPDFText_GetCharIndexFromTextIndex(words.raw, unit)
        if not 0 <= place < count:
            return None
        letters[place] = character
        unit += 1
        if ord(character) > 0xFFFF:
            unit += 1
            if place + 1 < count:
                letters[place + 1] = _HALF
    return "".join(letters)


def plain(words: pdfium.PdfTextPage, entries: Sequence[Entry] = ()) -> list[Line]:
    """The lines of a page as PDFium orders them, without places, and then its entries."""
    text: str = words.get_text_range()
    texts = [*text.split("\r\n"), *(one.text for one in entries)]
    return [Line(line) for line in texts if line.strip()]


def _divided(row: Row) -> Row:
    *cells, last = row.cells or [Cell("", 0.0, 0.0)]
    return row._replace(cells=[*cells, last._replace(text=last.text + HYPHEN)])


def _level(rows: Sequence[Row]) -> list[Row]:
    """The rows with those in one that stand at one height, such as what follows a raised number."""
    found: list[Row] = []
    for row in rows:
        former = found[-1] if found else row
        if former is row or not (row.cells and former.cells):
            found.append(row)
            continue
        last, (first, *rest) = former.cells[-1], row.cells
        size = max(row.size, former.size)
        gap, lift = (first.left - last.right) / size if size else 0.0, row.bottom - former.bottom
        is_raised = (
            not rest
            and row.size < _SMALL * former.size
            and _LIFT * size < lift < _LOWER * size
            and gap < _BLANK
            and first.text.isdecimal()
        )
        if is_raised:
            first = first._replace(text=raised(first.text))
        elif not size or abs(lift) > _LEVEL * size or not _is_flat(last, size):
            found.append(row)
            continue
        if gap < -_BLANK:
            found.append(row)
        elif gap > _WIDE:
            found[-1] = former._replace(cells=[*former.cells, *row.cells], size=size)
        else:
            text = f"{last.text}{' ' if gap > _BLANK else ''}{first.text}"
            cells = [*former.cells[:-1], Cell(text, last.left, first.right), *rest]
            found[-1] = former._replace(cells=cells, size=size, bold=former.bold and row.bold)
    return found


def _is_flat(cell: Cell, size: float) -> bool:
    """Whether a cell runs across the page, not down, and ends with a whole word."""
    wide = cell.right - cell.left >= _LEVEL * size * min(len(cell.text), _FEW) / 2
    return wide and not cell.text.endswith(HYPHEN)


def _unnumbered(rows: list[Row]) -> list[Row]:
    """The rows without the numbers that count them at the margin, as drafts and courts have."""
    held = [number for number, row in enumerate(rows) if row.cells]
    counted = [
        (number, int(text))
        for number in held
        if len(rows[number].cells) > 1 and (text := rows[number].cells[0].text).isdecimal()
    ]
    if len(counted) < max(_LEAST_NUMBERED, _MOST_NUMBERED * len(held)):
        return rows
    follow = sum(b == a + 1 for (_, a), (_, b) in pairwise(counted))
    rest = [cells for number, _ in counted if len(cells := rows[number].cells) == 2]
    # items of a list begin with capitals, lines of a text go on in the middle of a sentence
    within = sum(cells[1].text[:1].islower() for cells in rest)
    is_prose = (
        rest
        and within >= _LEAST_WITHIN * len(rest)
        and median(len(cells[1].text) for cells in rest) >= 2 * _LEAST_LENGTH
    )
    if follow < _MOST_NUMBERED * (len(counted) - 1) or len(rest) < len(counted) / 2 or not is_prose:
        return rows
    found = list(rows)
    for number, _ in counted:
        found[number] = rows[number]._replace(cells=rows[number].cells[1:])
    return found


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
            lines.append(Line(text, row.size, row.bold, row.bottom, row.turned))
    return lines


def ordered(rows: Sequence[Row]) -> list[Row]:
    """The rows with the columns of prose one after the other that a program wrote line by line.

    Such columns share the white strip between them, which no line crosses. Tables do, too, but
    few of their cells go on in the middle of a sentence.
    """
    gaps = [
        (one.right, other.left)
        for row in rows
        for one, other in pairwise(row.cells)
        if one.right < other.left
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


def entries(page: pdfium.PdfPage) -> list[Entry]:
    """Values of form fields and remarks that a page shows; passwords and notes are none.

    PDFium's text of a page lacks them. The forms of the document are open.
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
        flags = pdfium_c.FPDFAnnot_GetFormFieldFlags(form, annotation)
        if field in _BOXES:
            text = _TICKED if pdfium_c.FPDFAnnot_IsChecked(form, annotation) else _EMPTY
        elif field in _FIELDS and not flags & _PASSWORD:
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
            near = min(
                level, key=lambda n: min(abs(box.left - one.right) for one in whole[n].cells)
            )
            cells = sorted([*whole[near].cells, cell], key=lambda cell: cell.left)
            whole[near] = whole[near]._replace(cells=cells)
            continue
        above = [number for number, row in enumerate(whole) if row.cells and row.bottom > box.top]
        place = 1 + min(above, key=lambda number: whole[number].bottom) if above else 0
        whole.insert(place, Row([cell], 0.0, False, box.bottom))
    return whole
