"""The files of a version of a LanceDB table, read from its manifest without LanceDB.

LanceDB opens only the newest manifest, and reads a manifest of zeros as an empty table. Lance's
``protos/table.proto`` (format 2) defines the layout: the message's length, the message
``Manifest``, and 16 bytes: the offset of that length, two version numbers and the letters LANC.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

# readers of an older version have ended by then: above the default of max_request_timeout
KEEP_VERSIONS = timedelta(minutes=15)

MAGIC = b"LANC"
_TAIL = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_NAME = re.compile(r"(\d+)\.manifest")
# names of 20 digits count down from here, so that a listing begins with the newest
_LAST = 2**64 - 1
_DIGITS = 20

# The fields of table.proto that this module reads, with their numbers. A type is a scalar or a
# message below; * marks a repeated field.
_MESSAGES = {
    "Manifest": {
        "fragments": (2, "Fragment*"),
        "version": (3, "uint64"),
        "index_section": (6, "uint64"),
        "transaction_file": (12, "bytes"),
    },
    "Fragment": {
        "id": (1, "uint64"),
        "files": (2, "DataFile*"),
        "deletion_file": (3, "DeletionFile"),
        "physical_rows": (4, "uint64"),
    },
    "DataFile": {"path": (1, "bytes"), "file_size_bytes": (6, "uint64")},
    "DeletionFile": {
        "file_type": (1, "uint64"),
        "read_version": (2, "uint64"),
        "id": (3, "uint64"),
        "num_deleted_rows": (4, "uint64"),
    },
    "IndexSection": {"indices": (1, "Index*")},
    "Index": {"uuid": (1, "Uuid"), "name": (3, "bytes"), "files": (10, "IndexFile*")},
    "Uuid": {"uuid": (1, "bytes")},
    "IndexFile": {"path": (1, "bytes"), "size_bytes": (2, "uint64")},
    # of a data file, in file2.proto
    "FileDescriptor": {"length": (2, "uint64")},
}


class TornError(Exception):
    """A damaged or incomplete file; the message describes the fault."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that a version needs.

    Attributes:
        path: relative to the table's folder.
        size: in bytes; 0 if the manifest does not say.
    """

    path: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Fragment:
    """Rows that were written together.

    Attributes:
        data: files of its columns.
        deletions: path of the file that lists its deleted rows.
        deleted: how many rows that file lists.
        rows: number of rows, deleted ones included.
    """

    number: int
    data: list[File]
    deletions: str | None
    deleted: int
    rows: int

    @property
    def paths(self) -> list[str]:
        """Paths of the files of its columns."""
        return [file.path for file in self.data]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A version of a table.

    Attributes:
        indices: files of its indexes, by name.
        transaction: path of the file that describes the change; readers do not need it.
    """

    version: int
    fragments: list[Fragment]
    indices: dict[str, list[File]]
    transaction: str | None

    @property
    def files(self) -> Iterator[File]:
        """The files that a reader needs: data, deletions and indexes."""
        for fragment in self.fragments:
            yield from fragment.data
            if fragment.deletions is not None:
                yield File(fragment.deletions)
        for files in self.indices.values():
            yield from files

    @property
    def paths(self) -> Iterator[str]:
        """Paths of all files but the manifest, relative to the table's folder."""
        yield from (file.path for file in self.files)
        if self.transaction is not None:
            yield self.transaction


def versions(folder: Path) -> dict[int, Path]:
    """Manifests of a table by version, the newest first.

    Args:
        folder: of the table, ``NAME.lance``.
    """
    paths = Path(folder, "_versions").glob("*.manifest")
    found = {number: path for path in paths if (number := version_of(path.name)) is not None}
    return dict(sorted(found.items(), reverse=True))


def version_of(name: str) -> int | None:
    """The version of a manifest's file name; None for other names."""
    if (named := _NAME.fullmatch(name)) is None:
        return None
    number = int(named[1])
    return _LAST - number if len(named[1]) == _DIGITS else number


def path(folder: Path, version: int) -> Path:
    """The path of the manifest of a version."""
    return Path(folder, "_versions", f"{_LAST - version:0{_DIGITS}}.manifest")


def read(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        TornError: it is damaged or incomplete.
        FileNotFoundError: it does not exist.
    """
    content = path.read_bytes()
    if len(content) < _TAIL.size:
        raise TornError(f"has {len(content)} bytes")
    start, _, _, magic = _TAIL.unpack_from(content, len(content) - _TAIL.size)
    if magic != MAGIC:
        raise TornError("does not end as a manifest does")
    message = _message(content, start)
    if start + _LENGTH.size + len(message) + _TAIL.size != len(content):
        raise TornError("its parts do not fit its length")
    try:
        held = _TYPES["Manifest"].FromString(message)
        section = _message(content, held.index_section) if held.HasField("index_section") else b""
        indices: dict[str, list[File]] = {}
        for index in _TYPES["IndexSection"].FromString(section).indices:
            # one index may have several parts
            indices.setdefault(index.name.decode(), []).extend(_index(index))
        found = Manifest(
            held.version,
            [_fragment(fragment) for fragment in held.fragments],
            indices,
            f"_transactions/{held.transaction_file.decode()}" if held.transaction_file else None,
        )
    except (DecodeError, ValueError) as error:
        raise TornError("its fields cannot be read") from error
    if not found.version:
        raise TornError("it names no version")
    return found


def resized(content: bytes, size: int, rows: int) -> bytes:
    """A manifest whose one data file has another size, in bytes, and another number of rows."""
    start = _TAIL.unpack_from(content, len(content) - _TAIL.size)[0]
    held = _TYPES["Manifest"].FromString(_message(content, start))
    [fragment] = held.fragments
    fragment.physical_rows = rows
    fragment.files[0].file_size_bytes = size
    # fields that this module does not know keep their values
    message: bytes = held.SerializeToString()
    return (
        content[:start]
        + _LENGTH.pack(len(message))
        + message
        + content[len(content) - _TAIL.size :]
    )


def file_rows(descriptor: bytes) -> int:
    """The number of rows that the descriptor of a data file names."""
    rows: int = _TYPES["FileDescriptor"].FromString(descriptor).length
    return rows


def _fragment(held: Any) -> Fragment:
    deletions = None
    if held.HasField("deletion_file"):
        of = held.deletion_file
        kind = "bin" if of.file_type else "arrow"
        deletions = f"_deletions/{held.id}-{of.read_version}-{of.id}.{kind}"
    data = [_file("data", file.path, file.file_size_bytes) for file in held.files]
    deleted = held.deletion_file.num_deleted_rows
    return Fragment(held.id, data, deletions, deleted, held.physical_rows)


def _index(held: Any) -> list[File]:
    folder = f"_indices/{uuid.UUID(bytes=held.uuid.uuid)}"
    return [_file(folder, file.path, file.size_bytes) for file in held.files]


def _file(folder: str, name: bytes, size: int) -> File:
    if not name:
        raise TornError("it does not name a file")
    return File(f"{folder}/{name.decode()}", size)


def _message(content: bytes, start: int) -> bytes:
    if start + _LENGTH.size > len(content):
        raise TornError("a part of it is beyond its end")
    (length,) = _LENGTH.unpack_from(content, start)
    message = content[start + _LENGTH.size : start + _LENGTH.size + length]
    if len(message) != length:
        raise TornError("a part of it is beyond its end")
    return message


def _types() -> dict[str, Any]:
    """Classes of the messages."""
    file = FileDescriptorProto(name="docsplit/manifest.proto", package="lance")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number)
            repeated = kind.endswith("*")
            added.label = added.LABEL_REPEATED if repeated else added.LABEL_OPTIONAL
            if (of := kind.rstrip("*")) in _MESSAGES:
                added.type, added.type_name = added.TYPE_MESSAGE, f".lance.{of}"
            else:
                added.type = FieldDescriptorProto.Type.Value(f"TYPE_{of.upper()}")
    pool = DescriptorPool()
    pool.Add(file)
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"lance.{name}")) for name in _MESSAGES
    }


_TYPES = _types()
