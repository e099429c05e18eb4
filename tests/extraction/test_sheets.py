"""Cells of spreadsheets that hold formulas."""

from __future__ import annotations

import io
import zipfile

import xlsxwriter

from tests.extraction.conftest import Read, content_of

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
