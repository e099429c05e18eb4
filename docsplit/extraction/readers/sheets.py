"""XLSX, XLS and ODS: each sheet as a heading and its rows, cells apart by tabs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from html import unescape
from types import MappingProxyType
from typing import Any, BinaryIO
from xml.etree.ElementTree import Element

from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    PasswordError,
    SheetVisibleEnum,
)

from docsplit.extraction.building import Builder
from docsplit.extraction.content import Content, Limits, UnreadableError
from docsplit.extraction.readers.office import paragraph
from docsplit.extraction.readers.package import COMPOUND, Package

# a cell with a formula and without a value; with a type, the value is an empty text
_CELL = re.compile(
    rb"<(?:\w+:)?c(?=\s)([^<>]*)>\s*<(?:\w+:)?f(?:\s[^<>]*?)?>([^<>]*)</(?:\w+:)?f>"
    rb"(?:\s*<(?:\w+:)?v(?:\s*/>|></(?:\w+:)?v>))?\s*</(?:\w+:)?c>"
)
_PLACE = re.compile(rb"\sr=[\"']([A-Z]{1,3})(\d{1,7})[\"']")
# a part that every file of a kind has
_NEEDED = {"XLSX": "xl/workbook.xml", "ODS": "content.xml"}
# characters of the names of columns in a heading
_MOST = 300
_STYLES = "xl/styles.xml"
# a format's own words
_QUOTED = re.compile(r'"[^"]*"|\\.')
# times without a day have this one
_FIRST_DAY = date(1900, 1, 1)


# what a sheet shows in some cells, by their rows and columns from 0: a formula, or its value as so
# many of a hundred
_Shown = Mapping[tuple[int, int], str]
_SHARE = "%"


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The values of the cells of an XLSX file, without empty rows and hidden sheets."""
    return _packed(stream, limits, "XLSX")


def read_opendocument(stream: BinaryIO, limits: Limits) -> Content:
    """The same of an ODS file."""
    return _packed(stream, limits, "ODS")


def read_old(stream: BinaryIO, limits: Limits) -> Content:
    """The same of an XLS file."""
    start = stream.read(len(COMPOUND))
    stream.seek(0)
    if start != COMPOUND:
        raise UnreadableError("no XLS file")
    builder = Builder(limits)
    return builder.content(_sheets(stream, builder, "XLS"))


def _packed(stream: BinaryIO, limits: Limits, kind: str) -> Content:
    package = Package(stream, limits, _NEEDED[kind], kind)
    # the parser below has no limit of its own for what a part unpacks to
    parts = {name: package.content(name) for name in package.names}
    shown: dict[str, _Shown] = {}
    boxes: dict[str, list[str]] = {}
    if kind == "XLSX":
        percent = _percent(package.xml(_STYLES))
        sheets = package.related(package.main, "/worksheet")
        for one in package.xml(package.main).iter("sheet"):
            for part in sheets.keys() & one.attrib.values():
                name, content = one.get("name", ""), parts.get(sheets[part], b"")
                shown[name] = dict([*_styled(content, percent), *_unsaved(content)])
                boxes[name] = list(_boxes(package, sheets[part]))
    stream.seek(0)
    builder = Builder(limits)
    return package.finished(builder, _sheets(stream, builder, kind, shown, boxes))


def _unsaved(part: bytes) -> Iterator[tuple[tuple[int, int], str]]:
    """The formulas of cells without a value, as a program that does not compute writes them."""
    for attributes, formula in _CELL.findall(part):
        if b" t=" not in attributes and (at := _PLACE.search(attributes)):
            yield _place(at), f"={unescape(formula.decode('utf-8', 'replace'))}"


def _place(found: re.Match[bytes]) -> tuple[int, int]:
    """The row and the column of a cell, from 0."""
    column = 0
    for letter in found[1]:
        column = 26 * column + letter - ord("@")
    return int(found[2]) - 1, column - 1


def _percent(styles: Element) -> set[int]:
    """The numbers of the styles of cells that show a share as so many of a hundred."""
    codes = {
        one.get("numFmtId", ""): _QUOTED.sub("", one.get("formatCode", ""))
        for one in styles.iter("numFmt")
    }
    known = {"9", "10", *(name for name, code in codes.items() if "%" in code)}
    cells = next(styles.iter("cellXfs"), None)
    return {
        number
        for number, one in enumerate(() if cells is None else cells)
        if one.get("numFmtId", "") in known
    }


def _styled(part: bytes, styles: set[int]) -> Iterator[tuple[tuple[int, int], str]]:
    """The places of the cells that have one of some styles."""
    if styles:
        either = b"|".join(b"%d" % one for one in sorted(styles))
        pattern = rb"<(?:\w+:)?c(?=\s)([^<>]*\ss=[\"'](?:" + either + rb")[\"'][^<>]*)>"
        for found in re.finditer(pattern, part):
            if at := _PLACE.search(found[1]):
                yield _place(at), _SHARE


def _boxes(package: Package, sheet: str) -> Iterator[str]:
    """The texts of the text boxes of a sheet."""
    for drawing in package.related(sheet, "/drawing").values():
        for box in package.xml(drawing).iter("txBody"):
            yield "\n".join(map(paragraph, box.iter("p")))


def _sheets(
    stream: BinaryIO,
    builder: Builder,
    kind: str,
    shown: Mapping[str, _Shown] = MappingProxyType({}),
    boxes: Mapping[str, list[str]] = MappingProxyType({}),
) -> str | None:
    """Add the visible sheets; the name of the first one."""
    try:
        book = CalamineWorkbook.from_filelike(stream)
        visible = [one for one in book.sheets_metadata if one.visible == SheetVisibleEnum.Visible]
        for sheet in visible:
            rows = _rows(book.get_sheet_by_name(sheet.name), shown.get(sheet.name, {}))
            _sheet(sheet.name, [cells for row in rows if (cells := _row(row))], builder)
            for box in boxes.get(sheet.name, ()):
                builder.add(box)
    except PasswordError as error:
        raise UnreadableError("encrypted; save it without a password") from error
    except CalamineError as error:
        raise UnreadableError(f"a damaged {kind} file") from error
    return next((one.name for one in visible), None)


def _rows(sheet: CalamineSheet, shown: _Shown) -> Iterable[list[Any]]:
    """The rows of a sheet with formulas in their cells, and shares as the sheet shows them."""
    if not shown:
        return sheet.iter_rows()
    formulas = [column for (_, column), text in shown.items() if text != _SHARE]
    # rows begin at the first column with a value
    left = sheet.start[1] if sheet.start else min(formulas, default=0)
    first = min([left, *formulas])
    rows = {row: [""] * (left - first) + cells for row, cells in enumerate(sheet.iter_rows())}
    for (row, column), text in shown.items():
        cells = rows.get(row, []) if text == _SHARE else rows.setdefault(row, [])
        place = column - first
        if text != _SHARE:
            cells += [""] * (place + 1 - len(cells))
            cells[place] = text
        elif place < len(cells) and isinstance(share := cells[place], float | int):
            cells[place] = f"{100 * share:.10g}%"
    return (rows[row] for row in sorted(rows))


def _sheet(name: str, rows: Sequence[list[str]], builder: Builder) -> None:
    if rows:
        # whatever row a hit shows, it says what the columns are
        builder.heading(1, name, _named(name, rows))
        builder.add("\n".join(map("\t".join, rows)))


def _named(name: str, rows: Sequence[list[str]]) -> str:
    """The name of a sheet, and those of its columns if its first row of several cells has them."""
    wide = [row for row in rows if len(row) > 1][:2]
    if len(wide) < 2 or not all(wide[0]) or any(_is_number(cell) for cell in wide[0]):
        return name
    columns = ", ".join(wide[0])
    return f"{name}: {columns}" if len(columns) <= _MOST else name


def _is_number(cell: str) -> bool:
    return not any(map(str.isalpha, cell))


def _row(cells: list[Any]) -> list[str]:
    found = list(map(_cell, cells))
    while found and not found[-1]:
        found.pop()
    return found


def _cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime) and value.date() <= _FIRST_DAY:
        value = value.time()
    if isinstance(value, timedelta):
        seconds = round(value.total_seconds())
        sign, seconds = "-" if seconds < 0 else "", abs(seconds)
        return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if isinstance(value, datetime | date | time):
        return str(value)
    return " ".join(str(value).split())
