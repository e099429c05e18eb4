#!/bin/sh
# python-calamine gives a cell with an error the same value as an empty one.
#
# With python-calamine 0.9.1. Guess: `#DIV/0!` comes as that text or as an error, since the file stores it as the value of
# the cell. Seen: it is "", as where nothing stands. A total that failed to compute reads as a gap, and a row of errors at the
# end of a table as no row. Two days become one besides: the numbers 59 and 60 are both 1900-02-28, since the calendar of
# spreadsheets has a 29 February 1900 and ours has none.
# Joined here: a writer of real files and their reader.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet python-calamine==0.9.1 xlsxwriter==3.3.1
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import importlib.metadata
import io
from datetime import date

import xlsxwriter
from python_calamine import CalamineWorkbook

FEBRUARY = date(1900, 2, 28)
EXPECTED = [["total", 7.0, ""], ["", "", ""], [FEBRUARY, FEBRUARY, date(1900, 3, 1)]]
made = io.BytesIO()
book = xlsxwriter.Workbook(made, {"in_memory": True})
sheet = book.add_worksheet()
day = book.add_format({"num_format": "yyyy-mm-dd"})
sheet.write_row(0, 0, ["total", 7])
for place, error in enumerate(("#DIV/0!", "#N/A", "#REF!")):
    sheet.write_formula(1, place, "=1/0", None, error)
for place, number in enumerate((59, 60, 61)):
    sheet.write_number(2, place, number, day)
book.close()
made.seek(0)
print("python-calamine", importlib.metadata.version("python-calamine"))
seen = CalamineWorkbook.from_filelike(made).get_sheet_by_index(0).to_python()
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
