"""XLSX, XLS and ODS: each sheet as a heading and its rows, cells apart by tabs."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, BinaryIO

from python_calamine import CalamineError, CalamineWorkbook, SheetVisibleEnum

from extraction.building import Builder
from extraction.content import Content, Limits, UnreadableError
from extraction.office.package import COMPOUND, Package

# a part that every file of a kind has
_NEEDED = {"XLSX": "xl/workbook.xml", "ODS": "content.xml"}
# characters of the names of columns in a heading
_MOST = 300


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
    for name in package.names:
        package.content(name)
    stream.seek(0)
    builder = Builder(limits)
    return package.finished(builder, _sheets(stream, builder, kind))


def _sheets(stream: BinaryIO, builder: Builder, kind: str) -> str | None:
    """Add the visible sheets; the name of the first one."""
    try:
        book = CalamineWorkbook.from_filelike(stream)
        visible = [one for one in book.sheets_metadata if one.visible == SheetVisibleEnum.Visible]
        for sheet in visible:
            rows = book.get_sheet_by_name(sheet.name).iter_rows()
            _sheet(sheet.name, [cells for row in rows if (cells := _row(row))], builder)
    except CalamineError as error:
        locked = "assword" in str(error)
        reason = "encrypted; save it without a password" if locked else f"a damaged {kind} file"
        raise UnreadableError(reason) from error
    return next((one.name for one in visible), None)


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
    if isinstance(value, datetime | date | time | timedelta):
        return str(value)
    return " ".join(str(value).split())
