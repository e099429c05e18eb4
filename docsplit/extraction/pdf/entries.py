"""What is typed into a PDF's page: values of form fields, and remarks that the page shows."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from docsplit.extraction.pdf.columns import Cell, Row

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
