"""The folder of an export: its manifest, its lock, and what an earlier run left."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from docsplit.corpora.tables import DERIVED
from service.errors import CommandError
from service.index.documents import Index
from service.index.rows import records
from service.index.rows.fields import PREFIX, column_name
from service.index.rows.vectors import (
    window_blobs,
    windows_column,
    windows_searchable,
    windows_type,
)

_OUTLINE = pa.struct(
    {
        "pages": pa.list_(pa.int32()),
        "headings": pa.list_(pa.struct({"start": pa.int32(), "title": pa.string()})),
    }
)
# what stands in the manifest
MEANINGS = {
    "id": "the document's id",
    "title": "the title, if it has one",
    "text": "the whole text",
    "metadata": "a JSON object",
    "links": "ids of the documents that it cites",
    "outline": "first characters of pages and headings, of a document from a file",
    "version": "time of the last write, in microseconds since 1970; grows with each write",
    "vector": "the document's vector, of unit length",
    "windows": "the vectors of its windows, of unit length",
    "window_ends": "one past the last character of each window, counted in code points",
}
_TYPED = "a declared field of the metadata; dates are microseconds since 1970"


def meaning(column: str) -> str:
    """What a column of an export holds."""
    return MEANINGS.get(column, _TYPED)


def schema(index: Index, *, windows: bool) -> pa.Schema:
    """The schema of an export.

    Args:
        index: to export.
        windows: whether to write the vectors of windows and their ends.
    """
    held = index.schema
    dimensions = held.field("vector").type.list_size
    document = {
        "id": pa.string(),
        "title": pa.string(),
        "text": pa.string(),
        "metadata": pa.string(),
        "links": pa.list_(pa.string()),
        "outline": _OUTLINE,
    }
    derived = {"version": pa.int64(), "vector": held.field("vector").type}
    if windows:
        derived |= {
            "windows": windows_type(dimensions),
            "window_ends": pa.list_(pa.int32()),
        }
    identity = index.identity
    derived |= {PREFIX + name: held.field(column_name(name)).type for name in identity.fields}
    return pa.schema(
        [
            *(pa.field(name, kind, nullable=name != "id") for name, kind in document.items()),
            *(pa.field(name, kind, metadata={DERIVED: "true"}) for name, kind in derived.items()),
        ],
        metadata={"docsplit.bundle": identity.model, "docsplit.revision": identity.revision},
    )


def rows(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """Stored rows as an export has them.

    Args:
        found: sound rows of documents, with all columns of the index.
        schema: of the export.
    """
    sources = {
        name: column_name(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else name
        for name in schema.names
    }
    held = _names(found)
    columns: dict[str, Any] = {name: found[one] for name, one in sources.items() if one in held}
    columns["version"] = found["updated"]
    columns["outline"] = [
        outline
        and {
            "pages": outline.pages,
            "headings": [{"start": start, "title": title} for start, title in outline.headings],
        }
        for outline in records.outlines(found)
    ]
    if "windows" in schema.names and not windows_searchable(found.schema):
        blobs = window_blobs(found["windows"])
        ends = found["window_ends"].to_pylist()
        own = [records.windows(*pair).vectors for pair in zip(blobs, ends, strict=True)]
        columns["windows"] = windows_column(own, schema.field("windows").type)
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def sizes(found: pa.Table, schema: pa.Schema) -> npt.NDArray[np.int64]:
    """About how many bytes each row of an export takes before compression.

    The sizes depend only on the content, so a resumed export cuts its files at the same rows.
    """
    dimensions = schema.field("vector").type.list_size
    total = np.full(found.num_rows, 4 * dimensions, np.int64)
    for name in ("id", "title", "text", "metadata"):
        total += _lengths(pc.binary_length(found[name]))
    if "windows" in schema.names:
        total += 2 * dimensions * _lengths(pc.list_value_length(found["windows"]))
    return total


def _lengths(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    return found


def _names(found: pa.Table) -> set[str]:
    return set(found.schema.names) - {"outline", "updated"}


SUFFIXES = {"parquet": ".parquet", "arrow": ".arrow"}
# before compression; a single row may have more
FILE_BYTES = 512 * 2**20
GROUP_BYTES = 16 * 2**20
GROUP_ROWS = 8192


class Cutter:
    """Decides after which rows of a file a row group ends, and when the file is full.

    Args:
        most: rows of the file.
    """

    def __init__(self, most: int) -> None:
        self._left = [most, FILE_BYTES]
        self._group = [GROUP_ROWS, GROUP_BYTES]

    @property
    def whole(self) -> bool:
        """Whether the file is full."""
        return min(self._left) <= 0

    def cuts(self, sizes: npt.NDArray[np.int64]) -> Iterator[int]:
        """Numbers of rows after which a group ends, until the file is full.

        Args:
            sizes: bytes of the next rows.
        """
        for row, size in enumerate(sizes.tolist(), 1):
            for left in (self._left, self._group):
                left[0] -= 1
                left[1] -= size
            if self.whole or min(self._group) <= 0:
                self._group = [GROUP_ROWS, GROUP_BYTES]
                yield row
                if self.whole:
                    return


class Writer:
    """An open file; each group of rows is written at once."""

    def __init__(self, stream: Any, schema: pa.Schema, form: str) -> None:
        self._pending: list[pa.Table] = []
        self._schema = schema
        self.rows = 0
        self._parquet: Any = None
        self._arrow: Any = None
        if form == "parquet":
            self._parquet = pq.ParquetWriter(
                stream, schema, compression="zstd", use_dictionary=False
            )
        else:
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            self._arrow = pa.ipc.new_file(stream, schema, options=options)

    def add(self, rows: pa.Table) -> None:
        """Add rows to the present group."""
        self._pending.append(rows)
        self.rows += rows.num_rows

    def flush(self) -> None:
        """End the present group."""
        group = pa.concat_tables([self._schema.empty_table(), *self._pending]).combine_chunks()
        self._pending = []
        if not group.num_rows:
            return
        if self._parquet is not None:
            self._parquet.write_table(group, row_group_size=group.num_rows)
        else:
            self._arrow.write_table(group)

    def close(self) -> None:
        """End the file."""
        self.flush()
        (self._parquet or self._arrow).close()

    def abandon(self) -> None:
        """Free what the file needs, after an error."""
        with suppress(Exception):
            (self._parquet or self._arrow).close()
        if self._parquet is not None:
            # otherwise it tries again when it is collected, and warns
            self._parquet.is_open = False


@contextmanager
def writer(path: Path, schema: pa.Schema, form: str) -> Iterator[Writer]:
    """A writer of a new file."""
    with path.open("wb") as stream:
        made = Writer(stream, schema, form)
        try:
            yield made
            made.close()
        except BaseException:
            made.abandon()
            raise


# readers of folders of Parquet files leave out names that begin with _ or a dot
MANIFEST = "_manifest.json"
_PARTIAL = ".partial"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class File:
    """A complete file of an export.

    Attributes:
        bytes: its size.
        sha256: its digest, as ``sha256sum`` prints it.
    """

    name: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged row, which the export leaves out."""

    document: str
    part: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What an export writes; a resumed export must agree with it.

    Attributes:
        generation: of the index; each of its tables has another one.
        form: parquet or arrow.
        windows: whether the vectors of windows are written.
        file_rows: most rows of a file.
    """

    index: str
    generation: str
    form: str
    windows: bool
    file_rows: int


@dataclass(slots=True)
class Manifest:
    """The content of ``_manifest.json``.

    Attributes:
        table, version: the state of the index that is exported.
        pin: names the pin that keeps this state.
        next: number of the table's rows that are done.
        rows: documents in the files.
        columns: name, type and meaning of each column.
        damaged: rows that were left out.
    """

    plan: Plan
    bundle: str
    revision: str
    dimensions: int
    fields: dict[str, str]
    table: str
    version: int
    pin: str
    columns: list[dict[str, str]]
    format: int = FORMAT
    complete: bool = False
    next: int = 0
    rows: int = 0
    files: list[File] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)


class Destination:
    """A folder that one export at a time writes to.

    Args:
        path: of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder if it is missing, and keep other exports away from it.

        Raises:
            CommandError: it cannot be created, or another export writes to it.
        """
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CommandError(f"{self.path}: another export writes to it") from error
            except OSError:
                # a network file system without locks
                pass
            yield
        finally:
            os.close(descriptor)

    def manifest(self) -> Manifest | None:
        """The manifest of an earlier run; None if the folder is empty.

        Raises:
            CommandError: the folder holds something else.
        """
        try:
            return _MANIFEST.validate_json((self.path / MANIFEST).read_bytes())
        except FileNotFoundError:
            pass
        except (ValidationError, OSError) as error:
            raise CommandError(
                f"{self.path / MANIFEST}: not the manifest of an export by this version: give an "
                "empty folder, or a new one"
            ) from error
        if any(not name.endswith(_PARTIAL) for name in os.listdir(self.path)):
            raise CommandError(
                f"{self.path}: not empty, and not an export: give an empty folder, or a new one"
            )
        return None

    def write(self, manifest: Manifest) -> None:
        """Replace the manifest in one step."""
        content: dict[str, Any] = asdict(manifest)
        with self.whole(MANIFEST) as path:
            path.write_text(json.dumps(content, indent=1) + "\n")

    @contextmanager
    def whole(self, name: str) -> Iterator[Path]:
        """A path to write a file at; the file gets its name once it is whole and on disk.

        If the block removes it, there is no such file.

        Raises:
            CommandError: it cannot be written; no part of it stays.
        """
        partial = self.path / f".{name}{_PARTIAL}"
        with writing(self.path):
            try:
                yield partial
                if partial.exists():
                    _flush(partial)
                    partial.replace(self.path / name)
                    _flush(self.path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise

    def file(self, name: str, rows: int) -> File:
        """The description of a complete file."""
        path = self.path / name
        with writing(self.path), path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return File(name, rows, path.stat().st_size, digest)

    def lacking(self, manifest: Manifest) -> str | None:
        """A file of the manifest that is missing or has another size."""
        for file in manifest.files:
            path = self.path / file.name
            if not path.is_file() or path.stat().st_size != file.bytes:
                return file.name
        return None


_MANIFEST = TypeAdapter(Manifest)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the folder and the remedy where the system refuses a write."""
    try:
        yield
    except OSError as error:
        raise CommandError(
            f"{path}: cannot be written ({error.strerror or error}); what is complete stays: "
            "solve this, then repeat the command"
        ) from error


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
