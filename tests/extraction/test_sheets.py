"""Cells of spreadsheets that hold formulas."""

from __future__ import annotations

import io
import zipfile

import xlsxwriter

from tests.extraction.conftest import Read, content_of, reason_of

PART = "xl/worksheets/sheet1.xml"


def test_a_formula_without_a_value_is_read_itself(read: Read) -> None:
    book = xlsxwriter.Workbook(written := io.BytesIO(), {"in_memory": True})
    sheet = book.add_worksheet("Sums")
    sheet.write(1, 1, 5)
    for row, column, formula, value in [
        (1, 2, '=B2&"x"', "none"),
        (1, 3, "=B2", 7),
        (3, 0, "=SUM(B2)", "none"),
        (3, 1, '=IF(B2,"")', "empty"),
    ]:
        sheet.write_formula(row, column, formula, None, value)
    book.close()
    without = io.BytesIO()
    with zipfile.ZipFile(written) as given, zipfile.ZipFile(without, "w") as made:
        for name in given.namelist():
            content = given.read(name)
            if name == PART:
                # as openpyxl writes it, and as other programs do
                content = content.replace(b' t="str"><f>B2&amp;', b"><f>B2&amp;")
                content = content.replace(b' t="str"><f>SUM', b"><f>SUM")
                for value, form in [("none", "<v></v>"), ("none", ""), ("empty", "<v></v>")]:
                    cell = f"<v>{value}</v>".encode()
                    content = content.replace(cell, form.encode(), 1)
            made.writestr(name, content)
    found = content_of(read(".xlsx", without.getvalue()))
    # an empty text, which has a type, is a value
    assert found.text == 'Sums\n\n\t5\t=B2&"x"\t7\n=SUM(B2)'


def shared(cells: list[tuple[str, str, str]]) -> bytes:
    """A book of one sheet; cells by place, with the attributes and the text of their formula."""
    book = xlsxwriter.Workbook(written := io.BytesIO(), {"in_memory": True})
    sheet = book.add_worksheet("Sums")
    for place, _, _ in cells:
        sheet.write_formula(place, f"={place}", None, 7)
    book.close()
    made = io.BytesIO()
    with zipfile.ZipFile(written) as given, zipfile.ZipFile(made, "w") as new:
        for name in given.namelist():
            content = given.read(name)
            for place, attributes, text in cells if name == PART else ():
                form = f"<f {attributes}>{text}</f>" if text else f"<f {attributes}/>"
                old = f"<f>{place}</f><v>7</v>".encode()
                assert old in content
                content = content.replace(old, form.encode())
            new.writestr(name, content)
    return made.getvalue()


def test_a_shared_formula_is_read_as_each_of_its_cells_has_it(read: Read) -> None:
    first = (
        "IF(A1&gt;$A1+A$1,SUM(Z:AA,$B:B,1:$2),LOG10(&quot;A1&quot;))&amp;&apos;My A1&apos;!B2"
        "&amp;T[A1]&amp;Q1!XFD9&amp;A1_b"
    )
    cells = [
        ("B1", 't="shared" ref="B1:C2" si="0"', first),
        ("C1", 't="shared" si="0"', ""),
        ("B2", "si='0' t='shared'", ""),
        # a damaged file: nothing has the formula of this number
        ("C2", 't="shared" si="1"', ""),
    ]
    found = content_of(read(".xlsx", shared(cells)))
    assert found.text.removeprefix("Sums\n\n").split("\n") == [
        "=IF(A1>$A1+A$1,SUM(Z:AA,$B:B,1:$2),LOG10(\"A1\"))&'My A1'!B2&T[A1]&Q1!XFD9&A1_b\t"
        "=IF(B1>$A1+B$1,SUM(AA:AB,$B:C,1:$2),LOG10(\"A1\"))&'My A1'!C2&T[A1]&Q1!A9&A1_b",
        "=IF(A2>$A2+A$1,SUM(Z:AA,$B:B,2:$2),LOG10(\"A1\"))&'My A1'!B3&T[A1]&Q1!XFD10&A1_b",
    ]


def test_many_cells_of_a_long_shared_formula_are_refused(read_bounded: Read) -> None:
    cells = [("A1", 't="shared" si="0"', "+".join(["A1"] * 1000))]
    cells += [(f"A{row}", 't="shared" si="0"', "") for row in range(2, 41)]
    found = read_bounded(".xlsx", shared(cells))
    assert "more than 100,000 characters of formulas" in reason_of(found)


def test_a_sheet_shows_shares_durations_and_text_boxes(read: Read) -> None:
    book = xlsxwriter.Workbook(written := io.BytesIO(), {"in_memory": True})
    sheet = book.add_worksheet("Sums")
    for column, (value, form) in enumerate(
        [
            (0.125, "0.0%"),
            (0.5, "0%"),
            (0.125, '0.0 "%"'),
            (1.5625, "[h]:mm"),
            (0.5, "h:mm"),
            (0.125, "0.000"),
        ]
    ):
        sheet.write_number(1, column, value, book.add_format({"num_format": form}))
    sheet.insert_textbox(5, 1, "A remark")
    book.close()
    found = content_of(read(".xlsx", written.getvalue()))
    assert found.text == "Sums\n\n12.5%\t50%\t0.125\t37:30:00\t12:00:00\t0.125\n\nA remark"
