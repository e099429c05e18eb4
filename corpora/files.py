"""Files of documents: their formats, and their bytes, compressed or not."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from corpora.errors import DataError

TABLES = (".parquet", ".csv", ".tsv", ".jsonl")
TEXTS = (".txt", ".md", ".rst")
FORMATS = ", ".join((*TABLES, *TEXTS))
# values are pyarrow's names
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
# limit of an unpacked line, text file or compressed Parquet file, which must fit into memory
MOST_BYTES = 1 << 28


def files(path: Path, but: Path | None = None) -> list[Path]:
    """The file itself, or all tables and texts below a folder except one, sorted by path.

    Raises:
        DataError: no such path, a file of another type, or a folder without suitable files.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    found = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    kept = [p for p in found if suffix(p) in (*TABLES, *TEXTS) and (but is None or p != but)]
    if not kept:
        packed = ", ".join(COMPRESSED)
        raise DataError(
            f"{path}: no file of a known type; known are {FORMATS}, each also with {packed}"
        )
    return kept


def suffix(path: Path) -> str:
    """The type of the unpacked file, lower case: ``.csv`` of ``a.csv.gz``."""
    return _unpacked(path).suffix.lower()


def stem(path: Path) -> str:
    """The file's name without types: ``a`` of ``a.csv.gz``."""
    return _unpacked(path).stem


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines with their ends, strictly UTF-8, without a byte order mark.

    Raises:
        DataError: not readable, not UTF-8, or a line of more than ``MOST_BYTES``.
    """
    number = 0
    try:
        with _open(path) as stream:
            while line := stream.readline(MOST_BYTES + 1):
                number += 1
                _check_size(len(line), f"{path}:{number}")
                yield number, _decoded(line, path, number)
    except OSError as error:
        raise DataError(f"{path}:{number + 1}: not readable ({error.strerror or error})") from None


def text(path: Path) -> str:
    """A text file, strictly UTF-8; raises like ``content`` and ``lines``."""
    return _decoded(content(path), path, 1)


def content(path: Path) -> bytes:
    """All bytes of a file, unpacked.

    Raises:
        DataError: not readable, or more than ``MOST_BYTES``.
    """
    try:
        with _open(path) as stream:
            found = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: not readable ({error.strerror or error})") from None
    _check_size(len(found), str(path))
    return found


def _decoded(found: bytes, path: Path, line: int) -> str:
    try:
        return found.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line += found.count(b"\n", 0, error.start)
        raise DataError(f"{path}:{line}: not UTF-8 ({error.reason}); save it as UTF-8") from None


def _check_size(size: int, where: str) -> None:
    if size > MOST_BYTES:
        raise DataError(f"{where}: more than {MOST_BYTES:,} bytes unpacked; split it")


def _unpacked(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def _open(path: Path) -> IO[bytes]:
    if path.suffix.lower() not in COMPRESSED:
        return path.open("rb")
    import pyarrow as pa

    codec = COMPRESSED[path.suffix.lower()]
    return io.BufferedReader(pa.input_stream(str(path), compression=codec))
