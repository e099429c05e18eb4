"""The files of a LanceDB table, and which of them its versions need.

The layout of a manifest is Lance's ``protos/table.proto`` (format 2): the file ends with the
message ``Manifest``, behind its length, and 16 bytes: the place of that length, two version numbers
and the letters LANC.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HINT = "_versions/latest_version_hint.json"
_FOLDERS = ("_versions", "data", "_deletions", "_transactions", "_indices")
_NAME = re.compile(r"(\d+)\.manifest")
# names of 20 digits count down from here
_LAST = 2**64 - 1
_TAIL = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")


class UnreadableError(ValueError):
    """A manifest that is not as it was written."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Rows that were written together.

    Attributes:
        data: paths of its columns' files.
        deletions: path of the file that lists its deleted rows.
        deleted: how many rows that lists.
        rows: deleted ones included.
    """

    number: int
    data: list[str]
    deletions: str | None
    deleted: int
    rows: int


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table.

    Attributes:
        indices: paths of the files of its indexes.
        transaction: path of the file that tells what it changed.
    """

    number: int
    fragments: list[Fragment]
    indices: list[str]
    transaction: str | None

    def needs(self) -> Iterator[str]:
        """Paths of all files but its manifest, relative to the table's folder."""
        for fragment in self.fragments:
            yield from fragment.data
            if fragment.deletions is not None:
                yield fragment.deletions
        yield from self.indices
        if self.transaction is not None:
            yield self.transaction


def tables(root: Path) -> list[tuple[str, str]]:
    """Databases and tables below ``index_path``, sorted."""
    found = [path for path in root.glob("*/*.lance") if path.is_dir()]
    return sorted((path.parent.name, path.name.removesuffix(".lance")) for path in found)


def folder(root: Path, database: str, table: str) -> Path:
    """Where the files of a table lie."""
    return root / database / f"{table}.lance"


def files(table: Path) -> list[str]:
    """All immutable files of a table, relative to its folder, sorted."""
    found = []
    for name in _FOLDERS:
        held = (path for path in (table / name).rglob("*") if path.is_file())
        found += [path.relative_to(table).as_posix() for path in held]
    return sorted(path for path in found if path != HINT and "#" not in path)


def version_of(path: str) -> int | None:
    """The version whose manifest a path is; None for other files."""
    named = _NAME.fullmatch(path.removeprefix("_versions/"))
    if named is None or not path.startswith("_versions/"):
        return None
    return _LAST - int(named[1]) if len(named[1]) == 20 else int(named[1])


def manifests(table: Path) -> dict[int, str]:
    """Paths of a table's manifests by version, the newest first."""
    found = {}
    for path in (table / "_versions").glob("*.manifest"):
        relative = f"_versions/{path.name}"
        if (number := version_of(relative)) is not None:
            found[number] = relative
    return dict(sorted(found.items(), reverse=True))


def read(path: Path) -> Version:
    """A version, from its manifest.

    Raises:
        UnreadableError: it is not as it was written.
        FileNotFoundError: it is not there.
    """
    content = path.read_bytes()
    try:
        start, _, _, magic = _TAIL.unpack_from(content, len(content) - _TAIL.size)
        if magic != b"LANC":
            raise UnreadableError("it does not end as a manifest does")
        return _version(content, list(_fields(_message(content, start))))
    except UnreadableError:
        raise
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise UnreadableError("its fields cannot be read") from error


def _version(content: bytes, fields: list[tuple[int, int | bytes]]) -> Version:
    number = 0
    fragments, indices = [], []
    transaction = None
    for field, value in fields:
        if field == 2:
            fragments.append(_fragment(_bytes(value)))
        elif field == 3:
            number = _int(value)
        elif field == 6:
            for inner, index in _fields(_message(content, _int(value))):
                if inner == 1:
                    indices += _index(_bytes(index))
        elif field == 12:
            transaction = f"_transactions/{_bytes(value).decode()}"
    if not number:
        raise UnreadableError("it names no version")
    return Version(number, fragments, indices, transaction)


def _fragment(message: bytes) -> Fragment:
    # protobuf leaves out numbers that are 0
    number = rows = deleted = 0
    data, deletions = [], None
    for field, value in _fields(message):
        if field == 1:
            number = _int(value)
        elif field == 2:
            path = _bytes(dict(_fields(_bytes(value)))[1])
            data.append(f"data/{path.decode()}")
        elif field == 3:
            deletions = dict(_fields(_bytes(value)))
        elif field == 4:
            rows = _int(value)
    path_of = None
    if deletions is not None:
        ending = "bin" if deletions.get(1) else "arrow"
        path_of = f"_deletions/{number}-{deletions.get(2, 0)!s}-{deletions.get(3, 0)!s}.{ending}"
        deleted = _int(deletions.get(4, 0))
    return Fragment(number, data, path_of, deleted, rows)


def _index(message: bytes) -> list[str]:
    fields = list(_fields(message))
    drawn = uuid.UUID(bytes=_bytes(dict(_fields(_bytes(dict(fields)[1])))[1]))
    held = [dict(_fields(_bytes(value)))[1] for field, value in fields if field == 10]
    return [f"_indices/{drawn}/{_bytes(name).decode()}" for name in held]


def _message(content: bytes, start: int) -> bytes:
    (length,) = _LENGTH.unpack_from(content, start)
    message = content[start + _LENGTH.size : start + _LENGTH.size + length]
    if len(message) != length:
        raise UnreadableError("a part of it is missing")
    return message


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a protobuf message's fields."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            number, at = _varint(message, at)
            yield key >> 3, number
            continue
        if kind not in (1, 2, 5):
            raise UnreadableError("its fields cannot be read")
        size, at = _varint(message, at) if kind == 2 else (8 if kind == 1 else 4, at)
        if at + size > len(message):
            raise UnreadableError("its fields cannot be read")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise UnreadableError("its fields cannot be read")


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise UnreadableError("its fields cannot be read")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise UnreadableError("its fields cannot be read")
    return value
