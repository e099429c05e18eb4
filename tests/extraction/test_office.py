"""Files that office programs wrote: numbers of lists, tables, sheets, slides, HTML and mail."""

from __future__ import annotations

import io
from email.message import EmailMessage

import docx
import pptx
import pytest
import xlsxwriter
from docx.document import Document
from docx.oxml import parse_xml
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from docsplit.extraction.content import Content
from docsplit.extraction.kinds import OLD
from tests.extraction.conftest import LIBREOFFICE, Read, content_of, reason_of

CONTRACT = """Framework agreement

between Alpha GmbH and Beta Ltd.

Definitions

1. “Goods” means steel beams.

2. “Price” means the price in annex A:

a. net of tax;

b. in euros.

3. “Day” means a working day.

Delivery

4. The seller delivers within 30 days.

5. Late delivery costs 1 % a week¹.

Ex works

Free on board

Prices

Item\tPrice
\t2025\t2026
Beam\t10\t11
Rope (nylon)\ton request

Signed in Berlin."""


def stored(read: Read, name: str) -> Content:
    path = LIBREOFFICE / name
    return content_of(read(path.suffix, path.read_bytes()))


@pytest.mark.parametrize("name", ["contract.odt", "contract.docx"])
def test_lists_have_the_numbers_that_the_page_shows(read: Read, name: str) -> None:
    found = stored(read, name)
    assert found.text == CONTRACT
    assert [one.title for one in found.headings] == [
        "Framework agreement",
        "Definitions",
        "Delivery",
    ]


def test_html_has_the_same_numbers_and_columns(read: Read) -> None:
    page = (
        "<h1>Framework agreement</h1><p>between Alpha GmbH and Beta Ltd.<h2>Definitions</h2><ol>"
        "<li>“Goods” means steel beams.<li><p>“Price” means the price in annex A:</p><ol type=a>"
        "<li>net of tax;<li>in euros.</ol><li>“Day” means a working day.</ol><h2>Delivery</h2>"
        "<ol start=4><li>The seller delivers within 30 days.<li>Late delivery costs 1 % a week"
        "<sup>1</sup>.</ol><ul><li>Ex works<li>Free on board</ul><p>Prices</p><table><thead><tr>"
        "<th rowspan=2>Item<th colspan=2>Price</tr><tr><th>2025<th>2026</tr></thead><tbody><tr><td>"
        "<p>Beam</p><td>10<td>11</tr><tr><td>Rope<br>(nylon)<td colspan=2>on request</tr></table>"
        "<p>Signed in Berlin."
    )
    assert content_of(read(".html", page.encode())).text == CONTRACT


def numbered() -> Document:
    """Headings of two levels that Word numbers, as in contracts."""
    document = docx.Document()
    numbering = document.part.numbering_part.element
    levels = "".join(
        f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="{style}"/>'
        f'<w:pStyle w:val="Heading{level + 1}"/><w:lvlText w:val="{text}"/></w:lvl>'
        for level, (style, text) in enumerate([("upperRoman", "Article %1"), ("decimal", "§ %2.")])
    )
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    numbering.insert(
        0, parse_xml(f'<w:abstractNum {space} w:abstractNumId="90">{levels}</w:abstractNum>')
    )
    numbering.append(
        parse_xml(f'<w:num {space} w:numId="90"><w:abstractNumId w:val="90"/></w:num>')
    )
    for level in (1, 2):
        style = document.styles[f"Heading {level}"].element.get_or_add_pPr()
        style.get_or_add_numPr().get_or_add_numId().val = 90
    for level, name in [(1, "Parties"), (2, "Seller"), (2, "Buyer"), (1, "Price"), (2, "Net")]:
        document.add_heading(name, level)
    return document


def test_headings_of_word_have_their_numbers(read: Read) -> None:
    numbered().save(target := io.BytesIO())
    found = content_of(read(".docx", target.getvalue()))
    assert [one.title for one in found.headings] == [
        "Article I Parties",
        "§ 1. Seller",
        "§ 2. Buyer",
        "Article II Price",
        "§ 1. Net",
    ]
    # without a list they have none
    plain = docx.Document()
    plain.add_heading("Parties", 1)
    plain.save(target := io.BytesIO())
    assert content_of(read(".docx", target.getvalue())).text == "Parties"


@pytest.mark.parametrize("kind", [".xlsx", ".xls", ".ods"])
def test_a_sheet_has_its_rows_and_its_heading_names_the_columns(read: Read, kind: str) -> None:
    if kind == ".xlsx":
        book = xlsxwriter.Workbook(target := io.BytesIO(), {"in_memory": True})
        sheet, hidden = book.add_worksheet("Prices"), book.add_worksheet("Hidden")
        rows = [
            ["Price list 2026"],
            ["Item", "Valid from", "Discount", "Price"],
            ["Beam 0", "", 0.125],
        ]
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
        hidden.write(0, 0, "secret")
        hidden.hide()
        book.close()
        found = content_of(read(kind, target.getvalue()))
    else:
        found = stored(read, f"prices{kind}")
        assert "Beam 1\t2026-01-02\t0.125\t1234.5\n" in found.text
        assert "two lines\t0.3" in found.text
    assert found.text.startswith(
        "Prices\n\nPrice list 2026\nItem\tValid from\tDiscount\tPrice\nBeam 0"
    )
    assert "secret" not in found.text
    [heading] = found.headings
    assert heading.title == "Prices: Item, Valid from, Discount, Price"
    assert found.title == "Prices"


def test_the_heading_of_a_sheet_without_names_of_columns_is_its_name(read: Read) -> None:
    book = xlsxwriter.Workbook(target := io.BytesIO(), {"in_memory": True})
    sheet = book.add_worksheet("Numbers")
    for number in range(3):
        sheet.write_row(number, 0, ["a", number, number])
    book.close()
    assert [one.title for one in content_of(read(".xlsx", target.getvalue())).headings] == [
        "Numbers"
    ]


def test_a_hidden_sheet_gives_no_title(read: Read) -> None:
    book = xlsxwriter.Workbook(target := io.BytesIO(), {"in_memory": True})
    hidden, sheet = book.add_worksheet("Salaries"), book.add_worksheet("Prices")
    sheet.activate()
    hidden.hide()
    for one in (hidden, sheet):
        one.write(0, 0, "a cell")
    book.close()
    assert content_of(read(".xlsx", target.getvalue())).title == "Prices"


def test_slides_have_tables_charts_groups_and_notes(read: Read) -> None:
    found = stored(read, "deck.odp")
    assert found.text.startswith(
        "Quarter results\n\nSales up\n\nCosts down\n\nRegion\tSales\nNorth\t12\n\nSay thanks"
    )
    assert found.text.endswith("Chart\n\nin a group")
    assert [found.text[start:].split("\n")[0] for start in found.pages] == [
        "Quarter results",
        "Chart",
        "",
    ]
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Chart"
    data = CategoryChartData()
    data.categories = ["Q1", "Q2"]
    data.add_series("Revenue", (1.2, 2.3))
    size = (Inches(1), Inches(1), Inches(4), Inches(3))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *size, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "Revenue by quarter"
    deck.save(target := io.BytesIO())
    found = content_of(read(".pptx", target.getvalue()))
    assert found.text == "Chart\n\nRevenue by quarter\n\n\tQ1\tQ2\nRevenue\t1.2\t2.3"


def test_html_leaves_out_what_a_site_repeats_and_what_is_hidden(read: Read) -> None:
    page = (
        "<body><div role=navigation>Menu<div hidden>x</div></div><header><h1>Guide</h1></header>"
        "<main><p>Text<p style='display: none'>no<p hidden>no<h2>Part<a class=headerlink>¶</a></h2>"
        "<footer>Note</footer></main><aside>Adverts</aside><footer>Imprint</footer>"
    )
    assert content_of(read(".html", page.encode())).text == "Guide\n\nText\n\nPart\n\nNote"
    # without a main part all of it may be the text
    whole = content_of(read(".html", page.replace("main>", "div>").encode())).text
    assert whole.endswith("Note\n\nAdverts\n\nImprint")


def test_the_cells_of_a_table_that_gives_a_page_its_form_are_blocks(read: Read) -> None:
    page = "<table><tr><td><h2>News</h2>One<td><table><tr><td>a<td>b</table></table>"
    assert content_of(read(".html", page.encode())).text == "News\n\nOne\n\na\tb"


REPLY = """Paid.

On Mon, 23 Nov 2026 at 09:00, Ada Example
<ada@example.org> wrote:
> When will you pay?
>
> On Sun, Bob wrote:
> > Which invoice?
"""


def mail(body: str, subject: str = "Re: Invoice 4711") -> EmailMessage:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = (
        subject,
        "bob@example.org",
        "ada@example.org",
    )
    message.set_content(body)
    return message


def headings(found: Content) -> list[tuple[int, str]]:
    for one in found.headings:
        assert found.text[one.start :].startswith(one.title)
    return [(one.level, one.title) for one in found.headings]


def test_messages_that_a_reply_repeats_are_sections_of_their_own(read: Read) -> None:
    found = content_of(read(".eml", mail(REPLY).as_bytes()))
    assert found.text == (
        "Re: Invoice 4711\n\nFrom: bob@example.org\nTo: ada@example.org\n\nPaid.\n\nOn Mon, 23 Nov "
        "2026 at 09:00, Ada Example <ada@example.org> wrote:\n\nWhen will you pay?\n\nOn Sun, Bob "
        "wrote:\n\nWhich invoice?"
    )
    assert headings(found) == [
        (1, "Re: Invoice 4711"),
        (2, "On Mon, 23 Nov 2026 at 09:00, Ada Example <ada@example.org> wrote:"),
        (3, "On Sun, Bob wrote:"),
    ]


def test_outlook_writes_a_line_before_the_message(read: Read) -> None:
    body = "Paid.\n\n-----Original Message-----\nFrom: Ada\nSent: Monday\n\nWhen will you pay?"
    found = content_of(read(".eml", mail(body).as_bytes()))
    assert headings(found)[1:] == [(2, "From: Ada")]
    assert found.text.endswith("Paid.\n\nFrom: Ada\nSent: Monday\n\nWhen will you pay?")


def test_answers_between_quotes_stay_as_they_are(read: Read) -> None:
    body = "Ada wrote:\n> When?\n\nToday.\n\n> Sure?\n\nYes."
    found = content_of(read(".eml", mail(body).as_bytes()))
    assert found.text.endswith(body)
    assert len(found.headings) == 1


def test_attachments_and_attached_messages_follow_the_body(read: Read) -> None:
    message = mail("See the contract.")
    message.add_alternative("<p>See the <b>contract</b>.</p>", subtype="html")
    contract = (LIBREOFFICE / "contract.docx").read_bytes()
    for name, content in {"contract.docx": contract, "broken.pdf": b"no PDF"}.items():
        message.add_attachment(
            content, maintype="application", subtype="octet-stream", filename=name
        )
    message.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="logo.png")
    message.add_attachment(mail("The first one.", "Forwarded"))
    found = content_of(read(".eml", message.as_bytes()))
    assert "Attachments: contract.docx, broken.pdf, logo.png" in found.text
    parts = [
        "See the contract.",
        "contract.docx\n\nFramework",
        "Berlin.\n\nForwarded",
        "The first one.",
    ]
    places = [found.text.index(part) for part in parts]
    assert places == sorted(places)
    assert found.text.count("See the") == 1
    assert [title for _, title in headings(found)][-1] == "Forwarded"


def forms(plain: str, *others: EmailMessage) -> bytes:
    """A mail with several forms of its body."""
    message = mail(plain)
    message.make_alternative()
    for one in others:
        message.attach(one)
    return message.as_bytes()


def page(text: str) -> EmailMessage:
    message = EmailMessage()
    message.set_content(f"<p>{text}</p>", subtype="html")
    return message


def test_an_attachment_within_one_form_of_a_body_is_read(read: Read) -> None:
    # as Apple Mail writes it
    form = page("See the notes.")
    form.add_attachment("The figures.", filename="notes.txt", disposition="inline")
    form.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="logo.png")
    found = content_of(read(".eml", forms("See the notes.", form)))
    assert "Attachments: notes.txt, logo.png" in found.text
    assert found.text.endswith("\n\nSee the notes.\n\nnotes.txt\n\nThe figures.")
    assert found.text.count("See the") == 1


def test_a_body_without_plain_text_is_read_from_its_page(read: Read) -> None:
    calendar = EmailMessage()
    calendar.set_content("BEGIN:VCALENDAR", subtype="calendar")
    found = content_of(read(".eml", forms(" \n", page("The news."), calendar)))
    assert found.text.endswith("\n\nThe news.")
    # a form that has a name is still one
    named = page("The news.")
    named.set_param("name", "news.html")
    found = content_of(read(".eml", forms("The news.", named)))
    assert found.text.count("The news.") == 1


@pytest.mark.parametrize("kind", OLD)
def test_an_old_format_is_refused_with_a_remedy(read: Read, kind: str) -> None:
    assert reason_of(read(kind, b"\xd0\xcf\x11\xe0")) == OLD[kind]
