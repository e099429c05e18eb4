"""XLSX: each sheet as a heading and its rows, cells apart by tabs."""

from datetime import date, datetime, time, timedelta
from typing import Any, BinaryIO

from python_calamine import CalamineError, CalamineWorkbook

from extraction.building import Builder
from extraction.content import Content, Limits, UnreadableError
from extraction.readers.package import Package


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The values of the visible cells, without empty rows."""
    package = Package(stream, limits, "xl/workbook.xml", "XLSX")
    # the parser below has no limit of its own for what a part unpacks to
    for name in package.names:
        package.content(name)
    stream.seek(0)
    builder = Builder(limits)
    try:
        book = CalamineWorkbook.from_filelike(stream)
        for name in book.sheet_names:
            rows = (_row(row) for row in book.get_sheet_by_name(name).iter_rows())
            text = "\n".join(row for row in rows if row)
            if text:
                builder.heading(1, name)
                builder.add(text)
    except CalamineError as error:
        raise UnreadableError("a damaged XLSX file") from error
    return package.finished(builder)


def _row(cells: list[Any]) -> str:
    return "\t".join(map(_cell, cells)).rstrip("\t")


def _cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime | date | time | timedelta):
        return str(value)
    return " ".join(str(value).split())
