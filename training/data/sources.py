"""Documents from JSONL, CSV, Parquet, text folders and Hugging Face datasets, as a stream.

One document is in memory at a time. Compressed ``.jsonl.gz``, ``.csv.gz`` and ``.txt.gz`` are read
as they are.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from training.errors import DataError
from training.settings import DataSettings

_PARQUET_ROWS = 256


@dataclass(frozen=True, slots=True)
class Document:
    """One document.

    Attributes:
        id: the source's own id, or the SHA-256 of the text where it has none.
        text: the whole text.
    """

    id: str
    text: str


def read_documents(settings: DataSettings) -> Iterator[Document]:
    """Stream the documents of ``settings.path`` in a fixed order.

    A path on disk is a file, a folder of files (read in the order of their names) or a dataset
    written by ``Dataset.save_to_disk``. Anything else is a dataset's name on the Hugging Face hub,
    streamed.

    Raises:
        DataError: a file or a field is missing, or a record is malformed; names file and line.
    """
    path = Path(settings.path)
    if not path.exists():
        if path.is_absolute() or path.parts[:1] in ((".",), ("..",)) or _suffix(path) in _READERS:
            raise DataError(f"{path}: no such file or folder (data.path)")
        yield from _from_hub(settings)
    elif _is_saved_dataset(path):
        yield from _from_saved_dataset(path, settings)
    else:
        for file in _files(path):
            yield from _READERS[_suffix(file)](file, settings)


def fingerprint(settings: DataSettings) -> str:
    """SHA-256 that changes when the documents change.

    Local files count by name and content. A hub dataset counts by name, configuration, split and
    revision only: name a revision to be sure that the same words are meant.
    """
    path = Path(settings.path)
    digest = hashlib.sha256()
    digest.update(json.dumps([settings.text_field, settings.id_field, settings.split]).encode())
    if not path.exists():
        digest.update(json.dumps([settings.path, settings.hub_config, settings.revision]).encode())
        return digest.hexdigest()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        name = file.name if file == path else file.relative_to(path).as_posix()
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        files = [path]
        if _suffix(path) not in _READERS:
            raise DataError(f"{path}: unknown file type; known are {', '.join(_READERS)}")
    else:
        files = sorted(p for p in path.rglob("*") if p.is_file() and _suffix(p) in _READERS)
        if not files:
            raise DataError(f"{path}: no {', '.join(_READERS)} file in this folder")
    return files


def _suffix(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    return Path(name).suffix.lower()


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines, strictly UTF-8."""
    number = 0
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: not UTF-8 ({error.reason} at byte {error.start})"
        ) from None
    except (EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path}:{number + 1}: damaged gzip file ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None


def _document(record: object, where: str, settings: DataSettings) -> Document:
    if not isinstance(record, Mapping):
        raise DataError(f"{where}: expected an object with fields, found {type(record).__name__}")
    text = record.get(settings.text_field)
    if settings.text_field not in record:
        raise DataError(
            f"{where}: no field {settings.text_field!r}; the record has "
            f"{', '.join(map(str, record)) or 'none'} (set data.text_field)"
        )
    if not isinstance(text, str):
        raise DataError(
            f"{where}: field {settings.text_field!r} must be text, found {type(text).__name__}"
        )
    given = record.get(settings.id_field)
    return Document(_text_digest(text) if given is None else str(given), text)


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _from_jsonl(path: Path, settings: DataSettings) -> Iterator[Document]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}:{number}: no valid JSON ({error.msg} at column {error.colno})"
            ) from None
        yield _document(record, f"{path}:{number}", settings)


def _from_csv(path: Path, settings: DataSettings) -> Iterator[Document]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    reader = csv.DictReader((line for _, line in _lines(path)), strict=True)
    try:
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if None in row:
                raise DataError(
                    f"{where}: {len(reader.fieldnames or [])} columns in the header, "
                    "more in this row"
                )
            yield _document(row, where, settings)
    except csv.Error as error:
        raise DataError(f"{path}:{reader.reader.line_num}: no valid CSV ({error})") from None


def _from_parquet(path: Path, settings: DataSettings) -> Iterator[Document]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            columns = [c for c in (settings.text_field, settings.id_field) if c in names]
            if settings.text_field not in names:
                raise DataError(
                    f"{path}: no column {settings.text_field!r}; the file has "
                    f"{', '.join(names)} (set data.text_field)"
                )
            row = 0
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=columns):
                for record in batch.to_pylist():
                    row += 1
                    yield _document(record, f"{path}: row {row}", settings)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: no readable Parquet file ({error})") from None


def _from_text(path: Path, settings: DataSettings) -> Iterator[Document]:
    root = Path(settings.path)
    name = path.name if path == root else path.relative_to(root).as_posix()
    yield Document(name, "".join(line for _, line in _lines(path)))


def _is_saved_dataset(path: Path) -> bool:
    return (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file()


def _from_saved_dataset(path: Path, settings: DataSettings) -> Iterator[Document]:
    import datasets

    try:
        loaded = datasets.load_from_disk(str(path))
    except (FileNotFoundError, ValueError) as error:
        raise DataError(f"{path}: no readable dataset folder ({error})") from None
    if isinstance(loaded, datasets.DatasetDict):
        if settings.split not in loaded:
            raise DataError(
                f"{path}: no split {settings.split!r}; it has {', '.join(loaded)} (set data.split)"
            )
        loaded = loaded[settings.split]
    yield from _records(loaded, str(path), settings)


def _from_hub(settings: DataSettings) -> Iterator[Document]:
    import datasets

    try:
        stream = datasets.load_dataset(
            settings.path,
            settings.hub_config,
            split=settings.split,
            revision=settings.revision,
            streaming=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"data.path {settings.path!r}: neither a file or folder here nor a dataset that can be "
            f"opened on the hub ({type(error).__name__}: {error})"
        ) from None
    yield from _records(stream, settings.path, settings)


def _records(rows: Any, name: str, settings: DataSettings) -> Iterator[Document]:
    for number, record in enumerate(rows, start=1):
        yield _document(record, f"{name}: row {number}", settings)


_READERS: dict[str, Callable[[Path, DataSettings], Iterator[Document]]] = {
    ".jsonl": _from_jsonl,
    ".csv": _from_csv,
    ".parquet": _from_parquet,
    ".txt": _from_text,
}
