"""Streams the rows of Parquet, CSV, TSV and JSON files."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docsplit.corpora.fields import DataError
from docsplit.corpora.files import COMPRESSED, JSON, MOST_BYTES, TABLES, content, lines, suffix

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
# marks columns of an exported index in Parquet that hold what is computed from the document
DERIVED = b"docsplit.derived"
_PARQUET_ROWS = 256
# the index of a table of pandas, which is no column of the data: in CSV it has no name
_INDEX = frozenset(("", "Unnamed: 0", "__index_level_0__"))


def is_table(path: Path) -> bool:
    """Whether ``rows`` can read this file."""
    return path.is_file() and suffix(path) in TABLES


def rows(
    path: Path,
    needed: Sequence[str] = (),
    wanted: Sequence[str] | None = None,
    *,
    typed: Collection[str] = (),
) -> Iterator[tuple[str, Row]]:
    """Stream pairs of a place, such as ``file.csv:3``, and a row.

    Args:
        path: a Parquet, CSV or TSV file, or JSON: an object a line, or an array of objects. The
            separator of a CSV file is the one that gives its header the most names.
        needed: columns that each row must have.
        wanted: further columns for the caller; None means all.
        typed: columns whose cells hold JSON in a CSV or TSV file, for example numbers; an empty
            cell is None, and a cell without valid JSON stays text.

    Raises:
        DataError: the file is not readable, or a column is missing or occurs twice; names file
            and line.
    """
    kind = suffix(path)
    if kind == ".parquet":
        yield from _parquet(path, needed, wanted)
        return
    if kind in (".csv", ".tsv"):
        used = None if wanted is None else {*needed, *wanted}
        separators = ",;\t|" if kind == ".csv" else "\t"
        yield from _separated(path, separators, typed, needed, used)
        return
    if kind not in JSON:
        raise DataError(f"{path}: unknown type of table; give a {', '.join(TABLES)} file")
    for where, row in _json(path):
        check(where, row, needed)
        yield where, row


def check(where: str, names: Collection[str], needed: Sequence[str]) -> None:
    """Raise DataError if a needed column is not among the names of a row or a file."""
    missing = [name for name in needed if name not in names]
    if missing:
        raise DataError(
            f"{where}: no column {' and '.join(missing)}; there are {', '.join(names) or 'none'}. "
            "Rename yours, or name it with a flag such as --text-field"
        )


def _parquet(
    path: Path, needed: Sequence[str], wanted: Sequence[str] | None
) -> Iterator[tuple[str, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    packed = path.suffix.lower() in COMPRESSED
    try:
        with pq.ParquetFile(pa.BufferReader(content(path)) if packed else path) as table:
            fields = [one for one in table.schema_arrow if DERIVED not in (one.metadata or {})]
            names = [one.name for one in fields if one.name not in _INDEX]
            check(str(path), names, needed)
            _check_unique(path, names, None if wanted is None else {*needed, *wanted})
            if wanted is not None:
                names = [name for name in names if name in (*needed, *wanted)]
            number = 0
            for batch in table.iter_batches(_PARQUET_ROWS, columns=names):
                for row in _python(batch):
                    number += 1
                    yield f"{path}: row {number}", row
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: no readable Parquet file ({error}); write it again") from None


def _python(batch: pa.RecordBatch) -> list[Row]:
    """Rows of Python values; text for times that Python cannot hold, as of a year above 9999."""
    try:
        found: list[Row] = batch.to_pylist()
    except (ValueError, OverflowError):
        columns = [map(_held, column) for column in batch.columns]
        return [
            dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)
        ]
    return found


def _held(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return str(value.cast("string"))


def _json(path: Path) -> Iterator[tuple[str, Row]]:
    filled = ((at, line) for at, line in lines(path) if not line.isspace())
    first = [*islice(filled, 1)]
    found = ((f"{path}:{at}", _parsed(path, at, one.rstrip())) for at, one in chain(first, filled))
    if first and first[0][1].lstrip().startswith("["):
        items = enumerate(_parsed(path, 1, content(path)), 1)
        found = ((f"{path}: item {at}", item) for at, item in items)
    for where, row in found:
        if not isinstance(row, dict):
            raise DataError(f"{where}: expected an object with fields, found {type(row).__name__}")
        yield where, row


def _parsed(path: Path, number: int, text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        number += getattr(error, "lineno", 1) - 1
        raise DataError(
            f"{path}:{number}: no valid JSON ({getattr(error, 'msg', error)}); write an object a "
            "line, or an array of objects"
        ) from None


def _separated(
    path: Path,
    separators: str,
    typed: Collection[str],
    needed: Sequence[str],
    used: Collection[str] | None,
) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(MOST_BYTES)
    found = (line for _, line in lines(path, guess=True))
    header = next(found, "")
    count = {one: len(next(csv.reader([header], delimiter=one), ())) for one in separators}
    delimiter = max(separators, key=count.__getitem__)
    reader = csv.reader(chain([header], found), delimiter=delimiter, strict=True)
    try:
        names = next(reader)
        if not header:
            return
        check(f"{path}:1", names, needed)
        _check_unique(path, names, used)
        kept = [(place, name) for place, name in enumerate(names) if name not in _INDEX]
        line = reader.line_num + 1
        for cells in reader:
            # a value in quotes may have several lines
            where, line = f"{path}:{line}", reader.line_num + 1
            if cells and len(cells) != len(names):
                raise DataError(
                    f"{where}: the number of values differs from the header's, {len(names)}; "
                    "quote values that contain a separator"
                )
            if cells:
                row = {name: cells[place] for place, name in kept}
                yield where, {k: _value(v) if k in typed else v for k, v in row.items()}
    except csv.Error as error:
        raise DataError(
            f"{path}:{reader.line_num}: no valid {suffix(path)[1:].upper()} ({error}); put "
            "a value that begins with a quote in quotes, and write each of its own quotes twice"
        ) from None


def _check_unique(path: Path, names: Sequence[str], used: Collection[str] | None) -> None:
    """Refuse two columns of one name, of which a row would keep only the last."""
    for name in dict.fromkeys(names):
        if names.count(name) > 1 and (used is None or name in used):
            raise DataError(f"{path}: two columns have the name {name!r}; rename or remove one")


def _value(cell: str) -> Any:
    try:
        # pandas writes booleans this way
        return json.loads({"True": "true", "False": "false"}.get(cell, cell)) if cell else None
    except (ValueError, RecursionError):
        return cell
