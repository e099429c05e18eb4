"""Files of documents: their formats, and their bytes, compressed or not."""

import io
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from docsplit.corpora.fields import DataError
from docsplit.extraction.content import Limits, UnreadableError
from docsplit.extraction.kinds import KINDS, OLD

TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
# most files of the last kind are no tables: a folder's are left out
JSON = (".jsonl", ".ndjson", ".json")
TYPES = (*TABLES, *KINDS)
FORMATS = ", ".join(TYPES)
# values are pyarrow's names
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".tgz": "gzip"}
# limit of an unpacked line, of a file other than a table, and of a compressed Parquet file
MOST_BYTES = 1 << 28
_CHUNK = 1 << 20


def files(path: Path, but: Path | None = None) -> list[Path]:
    """The file itself, or all files of known types below a folder except one, sorted by path.

    Raises:
        DataError: no such path, a file of another type, a folder without suitable files, or one
            that cannot be read: what is in it would count as removed.
    """
    try:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder")
        found = sorted(_below(path)) if path.is_dir() else [path]
    except OSError as error:
        where = error.filename or path
        raise DataError(f"{where}: not readable ({error.strerror or error})") from None
    known = (*TYPES, *OLD) if path.is_dir() else (*TYPES, *OLD, *JSON)
    kept = [p for p in found if suffix(p) in known and not same(p, but)]
    if not kept:
        packed = ", ".join(COMPRESSED)
        raise DataError(
            f"{path}: no file of a known type; known are {FORMATS}, each also with {packed}"
        )
    return kept


def left_out(path: Path) -> dict[str, int]:
    """How many files below a folder are of no known type, by their endings."""
    if not path.is_dir():
        return {}
    found = Counter(suffix(one) for one in _below(path) if not one.name.startswith("."))
    return {one: count for one, count in found.items() if one not in (*TYPES, *OLD)}


def _below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for parent, _, names in os.walk(folder, onerror=refuse):
        yield from (one for name in names if (one := Path(parent, name)).is_file())


def same(path: Path, other: Path | None) -> bool:
    """Whether two paths, one of them perhaps relative, name one file."""
    return other is not None and path.name == other.name and path.resolve() == other.resolve()


def suffix(path: Path) -> str:
    """The type of the unpacked file, lower case: ``.csv`` of ``a.csv.gz``."""
    return _unpacked(path).suffix.lower()


def stem(path: Path) -> str:
    """The file's name without types: ``a`` of ``a.csv.gz``."""
    return _unpacked(path).stem


def lines(path: Path, *, guess: bool = False) -> Iterator[tuple[int, str]]:
    """Numbered lines with their ends, strictly UTF-8, without a byte order mark.

    Args:
        path: of a text.
        guess: read all from the first line that is not UTF-8 on in its likeliest encoding, if the
            readers of files are installed; spreadsheets save CSV so.

    Raises:
        DataError: not readable, not UTF-8, or a line of more than ``MOST_BYTES``.
    """
    number = 0
    try:
        with _open(path) as stream:
            while line := stream.readline(MOST_BYTES + 1):
                number += 1
                _check_size(len(line), f"{path}:{number}")
                try:
                    decoded = _decoded(line, path, number)
                except DataError:
                    if not guess or find_spec("charset_normalizer") is None:
                        raise
                    rest = line + stream.read(MOST_BYTES)
                    _check_size(len(rest), f"{path}:{number}")
                    yield from enumerate(_guessed(rest, path, number), number)
                    return
                yield number, decoded
    except OSError as error:
        raise DataError(f"{path}:{number + 1}: not readable ({error.strerror or error})") from None


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


def whole(path: Path) -> IO[bytes]:
    """An open file of the unpacked bytes of a path: that file, or a temporary one.

    Raises:
        DataError: not readable, or more than ``MOST_BYTES``.
    """
    with ExitStack() as stack:
        try:
            if path.suffix.lower() not in COMPRESSED:
                _check_size(path.stat().st_size, str(path))
                return path.open("rb")
            unpacked = stack.enter_context(tempfile.TemporaryFile())
            with _open(path) as stream:
                while chunk := stream.read(_CHUNK):
                    unpacked.write(chunk)
                    _check_size(unpacked.tell(), str(path))
        except OSError as error:
            raise DataError(f"{path}: not readable ({error.strerror or error})") from None
        unpacked.seek(0)
        # the caller closes it
        stack.pop_all()
        return unpacked


def _decoded(found: bytes, path: Path, line: int) -> str:
    try:
        return found.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line += found.count(b"\n", 0, error.start)
        raise DataError(f"{path}:{line}: not UTF-8 ({error.reason}); save it as UTF-8") from None


def _guessed(found: bytes, path: Path, line: int) -> Iterator[str]:
    from docsplit.extraction.readers.encoded import text_of

    try:
        return io.StringIO(text_of(found, Limits(characters=MOST_BYTES)), newline="\n")
    except UnreadableError as error:
        raise DataError(f"{path}:{line}: {error}") from None


def _check_size(size: int, where: str) -> None:
    if size > MOST_BYTES:
        raise DataError(f"{where}: more than {MOST_BYTES:,} bytes unpacked; split it")


def _unpacked(path: Path) -> Path:
    if path.suffix.lower() not in COMPRESSED:
        return path
    return path.with_suffix(".tar" if path.suffix.lower() == ".tgz" else "")


def _open(path: Path) -> IO[bytes]:
    if path.suffix.lower() not in COMPRESSED:
        return path.open("rb")
    import pyarrow as pa

    codec = COMPRESSED[path.suffix.lower()]
    return io.BufferedReader(pa.input_stream(str(path), compression=codec))
