"""Rows of a Parquet, CSV, TSV or JSON lines file."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from export.errors import DataError

Row = dict[str, Any]
SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl")


def suffix(path: Path) -> str:
    """The file's type; ``.gz`` does not count."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def stem(path: Path) -> str:
    """The file's name without its type."""
    return Path(path.name.removesuffix(".gz")).stem


def is_table(path: Path) -> bool:
    """Whether this is a file that ``rows`` reads."""
    return path.is_file() and suffix(path) in SUFFIXES


def columns(path: Path) -> list[str]:
    """Names of the columns; for JSON lines those of the first record.

    Raises:
        DataError: not readable.
    """
    if suffix(path) == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            names: list[str] = pq.read_schema(path).names
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path}: no readable Parquet file ({error})") from None
        return names
    return list(next(_records(path), {}))


def rows(path: Path, needed: Sequence[str], wanted: Sequence[str] = ()) -> list[Row]:
    """All rows of a file, with the columns asked for; those wanted and not there are left out.

    Raises:
        DataError: not readable, a needed column missing, or no rows; names the file.
    """
    there = columns(path)
    if not there:
        raise DataError(f"{path}: holds no rows")
    missing = [name for name in needed if name not in there]
    if missing:
        raise DataError(
            f"{path}: no column {' and '.join(missing)}; there are {', '.join(there)}. Rename "
            "yours, or name it with --text-field or --label-field"
        )
    kept = [name for name in (*needed, *wanted) if name in there]
    found = [_picked(path, number, row, kept) for number, row in enumerate(_all(path, kept), 1)]
    if not found:
        raise DataError(f"{path}: holds no rows")
    return found


def _picked(path: Path, number: int, row: Row, kept: Sequence[str]) -> Row:
    lost = [name for name in kept if name not in row]
    if lost:
        raise DataError(f"{path}: row {number} has no {' and '.join(lost)}")
    return {name: row[name] for name in kept}


def _all(path: Path, kept: list[str]) -> Iterator[Row]:
    if suffix(path) == ".parquet":
        import pyarrow.parquet as pq

        yield from pq.read_table(path, columns=kept).to_pylist()
    else:
        yield from _records(path)


def _records(path: Path) -> Iterator[Row]:
    try:
        with _text(path) as stream:
            yield from (_json_lines if suffix(path) == ".jsonl" else _separated)(path, stream)
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: not readable as UTF-8 text ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None


@contextmanager
def _text(path: Path) -> Iterator[IO[str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as stream:
        yield stream


def _json_lines(path: Path, stream: IO[str]) -> Iterator[Row]:
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{number}: no valid JSON ({error.msg})") from None
        if not isinstance(record, dict):
            raise DataError(f"{path}:{number}: expected an object with fields")
        yield record


def _separated(path: Path, stream: IO[str]) -> Iterator[Row]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    delimiter = "\t" if suffix(path) == ".tsv" else ","
    reader = csv.DictReader(stream, delimiter=delimiter, strict=delimiter == ",")
    try:
        for row in reader:
            if None in row or None in row.values():
                raise DataError(f"{path}:{reader.line_num}: not as many values as columns")
            yield row
    except csv.Error as error:
        raise DataError(f"{path}:{reader.reader.line_num}: no valid CSV ({error})") from None
