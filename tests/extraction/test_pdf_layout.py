"""A PDF's columns, tables and headings, as a reader of the page sees them."""

from __future__ import annotations

import ctypes
import io
import textwrap
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
import pytest
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from docsplit.extraction.content import Limits
from docsplit.extraction.readers import pdf
from docsplit.extraction.readers.pdf import headings, title
from docsplit.extraction.readers.pdf_layout import Line
from tests.extraction.conftest import Read, content_of

LEFT = "The left column describes a river that runs through seven valleys and meets the sea. " * 5
RIGHT = "On the right we read of mountains that carry snow in every month of the year and fog. " * 5


def drawn(*pages: Callable[[Canvas], None]) -> bytes:
    target = io.BytesIO()
    canvas = Canvas(target)
    for draw in pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return target.getvalue()


def lines(canvas: Canvas, texts: list[str], left: float, top: float) -> None:
    for number, text in enumerate(texts):
        canvas.drawString(left, top - 13 * number, text)


def across(canvas: Canvas) -> None:
    """Two columns, line by line."""
    pairs = zip(textwrap.wrap(LEFT, 44), textwrap.wrap(RIGHT, 44), strict=False)
    for number, pair in enumerate(pairs):
        for column, text in enumerate(pair):
            lines(canvas, [text], 50 + 260 * column, 750 - 13 * number)


def test_columns_that_are_written_line_by_line_are_read_one_after_the_other(read: Read) -> None:
    found = content_of(read(".pdf", drawn(across)))
    words = " ".join(found.text.split())
    assert "meets the sea. The left column describes" in words
    assert "month of the year and fog. On the right" in words
    # the right column follows the left one
    assert words.rindex("river") < words.index("mountains")


TABLE = [["Item", "Price", "Due"], ["Beam of steel", "12.50", "May"], ["Rope", "3.00", "June"]]


def table(canvas: Canvas) -> None:
    for row, cells in enumerate([*TABLE, *TABLE[1:], *TABLE[1:]]):
        for column, text in enumerate(cells):
            lines(canvas, [text], 60 + 120 * column, 750 - 15 * row)


def test_the_cells_of_a_table_stand_apart_and_its_rows_together(read: Read) -> None:
    found = content_of(read(".pdf", drawn(table)))
    assert found.text.split("\n")[:3] == ["\t".join(row) for row in TABLE]
    # words of a sentence do not
    prose = drawn(lambda canvas: lines(canvas, textwrap.wrap(LEFT, 80), 50, 750))
    assert "\t" not in content_of(read(".pdf", prose)).text


@pytest.mark.parametrize(
    ("turn", "stated"), [(90, True), (180, True), (270, True), (90, False), (270, False)]
)
def test_turned_pages_are_read_as_upright_ones(read: Read, turn: int, stated: bool) -> None:
    def turned(draw: Callable[[Canvas], None]) -> Callable[[Canvas], None]:
        def page(canvas: Canvas) -> None:
            # of a table that lies on its side, as LaTeX turns it, the page may know nothing
            canvas.setPageRotation(turn if stated else 0)
            canvas.translate(420, 420)
            canvas.rotate(turn)
            canvas.translate(-420, -420)
            draw(canvas)

        return page

    for draw in (table, across, contract) if stated else (table, across):
        upright, found = (content_of(read(".pdf", drawn(one))) for one in (draw, turned(draw)))
        assert found.text == upright.text
        assert found.headings == upright.headings


def contract(canvas: Canvas) -> None:
    canvas.setFont("Helvetica-Bold", 20)
    lines(canvas, ["Supply of steel"], 50, 780)
    for number, name in enumerate(["Duties of the seller", "Duties of the buyer"], 1):
        canvas.setFont("Helvetica-Bold", 11)
        lines(canvas, [f"{number} {name}"], 50, 850 - 110 * number)
        canvas.setFont("Helvetica", 11)
        lines(canvas, textwrap.wrap(LEFT, 90)[:6], 50, 830 - 110 * number)


def test_letters_show_headings_and_the_title_of_a_pdf_without_an_outline(read: Read) -> None:
    found = content_of(read(".pdf", drawn(contract)))
    assert found.title == "Supply of steel"
    assert [(one.level, one.title) for one in found.headings] == [
        (1, "Supply of steel"),
        (2, "1 Duties of the seller"),
        (2, "2 Duties of the buyer"),
    ]
    for one in found.headings:
        assert found.text[one.start :].startswith(one.title)


def test_stated_headings_come_before_seen_ones(read: Read) -> None:
    def outlined(canvas: Canvas) -> None:
        canvas.setTitle("A title")
        canvas.bookmarkPage("here")
        canvas.addOutlineEntry("DUTIES of the buyer", "here")
        contract(canvas)

    found = content_of(read(".pdf", drawn(outlined)))
    assert found.title == "A title"
    [heading] = found.headings
    # the text has it with other capitals
    assert found.text[heading.start :].startswith("2 Duties of the buyer")


def test_an_outline_prefers_the_line_with_its_capitals(read: Read) -> None:
    def outlined(canvas: Canvas) -> None:
        texts = ["strings", "4096", "Strings", "1.2 Numbers", "of numbers", "Numbers"]
        lines(canvas, texts, 60, 750)
        for number, words in enumerate(["Strings", "Numbers", "Numbers"]):
            canvas.bookmarkPage(str(number))
            canvas.addOutlineEntry(words, str(number))

    found = content_of(read(".pdf", drawn(outlined)))
    places = [found.text[one.start :].partition("\n")[0] for one in found.headings]
    assert places == ["Strings", "1.2 Numbers", "Numbers"]


def test_a_title_of_an_outline_is_no_pattern(read: Read) -> None:
    title = r"The (x+)+ [OF] \d{2} -|\" '$^ A.B*?"

    def outlined(canvas: Canvas) -> None:
        lines(canvas, ["the xx of 12 A.B", title.replace("OF", "of"), "Text"], 60, 750)
        canvas.bookmarkPage("here")
        canvas.addOutlineEntry(title, "here")

    found = content_of(read(".pdf", drawn(outlined)))
    [heading] = found.headings
    assert found.text[heading.start :].startswith(title[:11])


def test_what_is_typed_into_a_page_is_read_in_its_place(read: Read) -> None:
    def form(canvas: Canvas) -> None:
        lines(
            canvas, ["Name:", "", "", "Country:", "", "", "Remarks", "", "", "", "Signed"], 50, 700
        )
        for top, name, value in [(690, "n", "Ada Lovelace"), (590, "r", "by post")]:
            canvas.acroForm.textfield(name=name, value=value, x=120, y=top, width=200, height=22)
        countries = ["France", "Spain"]
        canvas.acroForm.choice(
            name="c", value="France", options=countries, x=120, y=650, width=99, height=22
        )
        canvas.acroForm.textfield(
            name="p", value="a password", fieldFlags="password", x=120, y=500, width=99, height=22
        )

    text = "Name:\tAda Lovelace\nCountry:\tFrance\nRemarks\nby post\nSigned"
    assert content_of(read(".pdf", drawn(form))).text == text

    def boxes(canvas: Canvas) -> None:
        lines(canvas, ["Citizen of the EU", "", "Married", "", "Single"], 70, 700)
        canvas.acroForm.checkbox(name="eu", checked=True, x=50, y=698, size=12)
        canvas.acroForm.checkbox(name="married", checked=False, x=50, y=674, size=12)
        canvas.acroForm.radio(name="s", value="s", selected=True, x=50, y=650, size=12)
        canvas.acroForm.radio(name="s", value="t", selected=False, x=200, y=650, size=12)

    text = "☒\tCitizen of the EU\n☐\tMarried\n☒\tSingle\t☐"
    assert content_of(read(".pdf", drawn(boxes))).text == text
    document = pdfium.PdfDocument(drawn(lambda canvas: lines(canvas, ["Over", "Under"], 50, 700)))
    page = document[0]
    annotation = pdfium_c.FPDFPage_CreateAnnot(page, pdfium_c.FPDF_ANNOT_FREETEXT)
    box = pdfium_c.FS_RECTF(100, 712, 300, 697)
    pdfium_c.FPDFAnnot_SetRect(annotation, ctypes.byref(box))
    remark = ctypes.create_string_buffer("a remark\0".encode("utf-16-le"))
    pointer = ctypes.cast(remark, ctypes.POINTER(pdfium_c.FPDF_WCHAR))
    pdfium_c.FPDFAnnot_SetStringValue(annotation, b"Contents", pointer)
    pdfium_c.FPDFPage_CloseAnnot(annotation)
    target = io.BytesIO()
    document.save(target)
    assert content_of(read(".pdf", target.getvalue())).text == "Over\ta remark\nUnder"


BODY = [Line("a text in plain letters that goes on for a while", 10)] * 8


@pytest.mark.parametrize(
    "line",
    [
        Line("bold words that begin a paragraph and go on for a long time, as a remark.", 10, True),
        Line("Item\tPrice\tDue", 10, True),
        Line("12.4", 14, True),
        Line("a very long line " * 20, 14, True),
        Line("Plain words", 10),
    ],
)
def test_lines_that_are_no_headings(line: Line) -> None:
    assert headings([[*BODY, line, *BODY]]) == []
    assert len(headings([[*BODY, Line("A heading", 10, True), *BODY]])) == 1


def test_headings_in_one_style_are_apart_by_numbers_and_gaps() -> None:
    page = [
        Line("A heading of two", 14, bottom=700),
        Line("lines", 14, bottom=684),
        Line("1.1 Another one", 14, bottom=668),
        Line("A third", 14, bottom=640),
    ]
    assert [(one.first, one.last) for one in headings([[*page, *BODY * 3]])] == [
        (0, 1),
        (2, 2),
        (3, 3),
    ]


def test_a_page_of_one_size_has_no_title() -> None:
    assert title([BODY]) is None
    assert title([[Line("A report", 24), *BODY]]) == "A report"


def test_the_dots_of_a_table_of_contents_go(read: Read) -> None:
    def contents(canvas: Canvas) -> None:
        lines(canvas, [f"Chapter {name} {'. ' * 30}{name}" for name in (4, 7)], 50, 700)
        lines(canvas, ["and so on ..."], 50, 600)

    found = content_of(read(".pdf", drawn(contents)))
    assert found.text == "Chapter 4\t4\nChapter 7\t7\nand so on ..."


def test_raised_numbers_are_apart_from_the_word_before(read: Read) -> None:
    def notes(canvas: Canvas) -> None:
        line = canvas.beginText(72, 700)
        for text, rise in (
            ("The results", 0), ("12", 4), (" of 10", 0), ("6", 4), (" tons.", 0), ("3", 4),
            # the controls: lowered, and of the same size and height
            (" CO", 0), ("2", -2), (" and B12", 0),
        ):  # fmt: skip
            line.setFont("Helvetica", 8 if rise else 10)
            line.setRise(rise)
            line.textOut(text)
        canvas.drawText(line)

    text = content_of(read(".pdf", drawn(notes))).text
    assert " ".join(text.split()) == "The results¹² of 10⁶ tons.³ CO2 and B12"


PROSE = textwrap.wrap(LEFT + RIGHT, 80)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("turn", [90, 270, 45])
def test_a_turned_stamp_is_apart_from_the_flow(read: Read, turn: int, first: bool) -> None:
    def stamp(canvas: Canvas) -> None:
        canvas.saveState()
        canvas.setFont("Times-Roman", 20)
        canvas.translate(28, 250)
        canvas.rotate(turn)
        canvas.drawString(0, 0, "arXiv:2101.00001v2 [cs.CL] 1 Jan 2021")
        canvas.restoreState()

    def paper(canvas: Canvas) -> None:
        if first:
            stamp(canvas)
        canvas.setFont("Times-Bold", 17)
        lines(canvas, ["A Study of Long Documents"], 60, 780)
        canvas.setFont("Times-Roman", 10)
        lines(canvas, PROSE, 60, 740)
        if not first:
            stamp(canvas)

    found = content_of(read(".pdf", drawn(paper, paper)))
    assert found.title == "A Study of Long Documents"
    assert "arXiv" not in "".join(one.title for one in found.headings)
    assert found.text.count("arXiv") == 1
    assert " ".join(PROSE) in " ".join(found.text.split())


@pytest.mark.parametrize("first", [True, False])
def test_a_watermark_is_apart_from_the_flow(read: Read, first: bool) -> None:
    def page(canvas: Canvas, top: int) -> None:
        if first:
            canvas.setFont("Helvetica-Bold", 60)
            canvas.drawString(120, top, "DRAFT")
        canvas.setFont("Helvetica", 10)
        lines(canvas, PROSE, 60, 740)
        if not first:
            canvas.setFont("Helvetica-Bold", 60)
            canvas.drawString(120, top, "DRAFT")

    def across(canvas: Canvas) -> None:
        page(canvas, 725)

    def above(canvas: Canvas) -> None:
        page(canvas, 770)

    found = content_of(read(".pdf", drawn(across, across, across)))
    assert (found.title, found.headings) == (None, [])
    assert found.text.count("DRAFT") == 1
    assert found.text.startswith(" ".join(PROSE)[:40])
    # the same words above the text are its title
    assert content_of(read(".pdf", drawn(above, above, above))).title == "DRAFT"


def test_what_follows_a_raised_number_or_a_gap_stays_on_its_line(read: Read) -> None:
    def page(canvas: Canvas) -> None:
        for number in range(3):
            line = canvas.beginText(72, 700 - 20 * number)
            for text, rise in (("as Smith wrote", 0), ("3", 5), (".", 0)):
                line.setFont("Helvetica", 6 if rise else 10)
                line.setRise(rise)
                line.textOut(text)
            canvas.drawText(line)
        for column, text in enumerate(["A-2", "780", "778", "2"]):
            canvas.drawRightString(100 + 120 * column, 600, text)

    found = content_of(read(".pdf", drawn(page))).text
    assert found.split("\n") == ["as Smith wrote³."] * 3 + ["A-2\t780\t778\t2"]


def test_numbers_of_lines_are_no_text_and_those_of_items_are(read: Read) -> None:
    def draft(canvas: Canvas) -> None:
        for number, text in enumerate(PROSE, 1):
            lines(canvas, [str(number)], 30, 750 - 20 * number)
            lines(canvas, [text], 80, 750 - 20 * number)

    assert content_of(read(".pdf", drawn(draft))).text.split() == " ".join(PROSE).split()

    def duties(canvas: Canvas) -> None:
        for number in range(1, 15):
            lines(canvas, [str(number)], 30, 750 - 20 * number)
            lines(canvas, ["The seller delivers the goods within a month"], 80, 750 - 20 * number)

    assert "\n2\tThe seller" in content_of(read(".pdf", drawn(duties))).text

    def items(canvas: Canvas) -> None:
        for number in range(1, 13):
            for left, text in zip((30, 80, 300), (str(number), "Beam", "12.50"), strict=True):
                lines(canvas, [text], left, 750 - 20 * number)

    assert content_of(read(".pdf", drawn(items))).text.startswith("1\tBeam\t12.50\n2\tBeam")


def written(text: str) -> bytes:
    """A page in DejaVu Sans, whose text the file has as numbers of glyphs."""
    document = pdfium.PdfDocument.new()
    page = document.new_page(595, 842)
    data = (Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf").read_bytes()
    held = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
    font = pdfium_c.FPDFText_LoadFont(document, held, len(data), pdfium_c.FPDF_FONT_TRUETYPE, 1)
    for number, words in enumerate(textwrap.wrap(text, 60)):
        one = pdfium_c.FPDFPageObj_CreateTextObj(document, font, 11)
        buffer = ctypes.create_string_buffer(f"{words}\0".encode("utf-16-le"))
        pdfium_c.FPDFText_SetText(one, ctypes.cast(buffer, ctypes.POINTER(pdfium_c.FPDF_WCHAR)))
        pdfium_c.FPDFPageObj_Transform(one, 1, 0, 0, 1, 50, 780 - 14 * number)
        pdfium_c.FPDFPage_InsertObject(page, one)
    pdfium_c.FPDFPage_GenerateContent(page)
    document.save(target := io.BytesIO())
    return target.getvalue()


def test_a_font_that_does_not_say_its_characters_is_no_text() -> None:
    content = written(LEFT + RIGHT)
    mapped = content.replace(b"/ToUnicode", b"/ToUnicodX")
    assert mapped != content
    limits = Limits()
    assert pdf.read(io.BytesIO(content), limits).refusal is None
    found = pdf.read(io.BytesIO(mapped), limits)
    assert (found.text.strip(), found.scans) == ("", [0])
    assert found.refusal == "its fonts do not say which characters they show"


@pytest.mark.parametrize("hyphen", ["-", "\xad", "\u2010"])
def test_every_hyphen_at_the_end_of_a_line_joins_a_word(read: Read, hyphen: str) -> None:
    font = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
    pdfmetrics.registerFont(TTFont("DejaVu", str(font)))

    def page(canvas: Canvas) -> None:
        canvas.setFont("DejaVu", 11)
        texts = [*PROSE[:3], f"{PROSE[3]} infor{hyphen}", f"mation {PROSE[4]}", *PROSE[5:]]
        lines(canvas, texts, 40, 750)

    assert f"{PROSE[3]} information" in content_of(read(".pdf", drawn(page))).text


def test_accents_that_are_drawn_over_letters_belong_to_them(read: Read) -> None:
    font = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
    pdfmetrics.registerFont(TTFont("DejaVu", str(font)))

    def page(canvas: Canvas) -> None:
        canvas.setFont("DejaVu", 10)
        place = 72.0
        # an accent stands before its letter, or after it
        for text, accent, letter, before in [
            ("R", "¨", "a", True), ("sanen and Lema", "ˆ", "ı", True), ("tre, O", "˘", "g", False),
            ("uz, 5", "", "´", True), (" of", "", " ", True),
        ]:  # fmt: skip
            canvas.drawString(place, 700, text)
            place += canvas.stringWidth(text, "DejaVu", 10)
            wide = canvas.stringWidth(letter, "DejaVu", 10)
            over = place + (wide - canvas.stringWidth(accent, "DejaVu", 10)) / 2
            drawn = [(over, accent), (place, letter)]
            for left, one in drawn if before else reversed(drawn):
                canvas.drawString(left, 700, one)
            place += wide

    assert content_of(read(".pdf", drawn(page))).text == "Räsanen and Lemaître, Oğuz, 5´ of"


def test_a_paragraph_that_begins_bold_is_no_heading(read: Read) -> None:
    def page(canvas: Canvas) -> None:
        line = canvas.beginText(72, 700)
        for _ in range(4):
            line.setFont("Helvetica-Bold", 10)
            line.textOut("Inference ")
            line.setFont("Helvetica", 10)
            line.textLine("During the run, we apply the")
            for text in PROSE[:3]:
                line.textLine(text)
        canvas.drawText(line)

    assert content_of(read(".pdf", drawn(page))).headings == []
