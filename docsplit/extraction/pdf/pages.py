"""The pages of a PDF, and which of them show text as a picture."""

import re
import time
from contextlib import suppress
from itertools import islice
from typing import BinaryIO, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from docsplit.extraction.content import Limits, UnreadableError
from docsplit.extraction.pdf.entries import entries
from docsplit.extraction.pdf.layout import Layout, Line, plain

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
