"""What a version of a LanceDB table consists of, read from its manifest without LanceDB.

LanceDB opens the newest manifest alone, and takes one of zeros for an empty table. The layout is
Lance's ``protos/table.proto`` (format 2): the file ends with the message ``Manifest``, preceded by
its length, and 16 bytes: the place of that length, two version numbers and the letters LANC.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

# readers of an older version must have ended: above the default of max_request_timeout
KEEP_VERSIONS = timedelta(minutes=15)

MAGIC = b"LANC"
_TAIL = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_NAME = re.compile(r"(\d+)\.manifest")
# names of 20 digits count down from here, so that the newest is the first in a listing
_LAST = 2**64 - 1
_DIGITS = 20

# fields of the messages of table.proto
_FRAGMENTS, _VERSION, _INDEX_SECTION = 2, 3, 6
_FRAGMENT_ID, _DATA_FILES, _DELETIONS = 1, 2, 3
_DATA_PATH, _DATA_SIZE = 1, 6
_DELETION_KIND, _DELETION_VERSION, _DELETION_ID = 1, 2, 3
_INDEXES, _INDEX_UUID, _INDEX_FILES = 1, 1, 10
_UUID_BYTES = 1
_INDEX_PATH, _INDEX_SIZE = 1, 2

Value = int | bytes


class TornError(Exception):
    """A file is not as it was written; the message says how."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that a version needs.

    Attributes:
        path: relative to the table's folder.
        size: in bytes; 0 where the manifest does not tell.
    """

    path: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """A version of a table, and the files that it needs: data, deletions and indexes."""

    version: int
    files: list[File]


def versions(folder: Path) -> dict[int, Path]:
    """Manifests of a table by version, the newest first.

    Args:
        folder: of the table, ``NAME.lance``.
    """
    found = {}
    try:
        paths = list(Path(folder, "_versions").iterdir())
    except FileNotFoundError:
        return {}
    for path in paths:
        if named := _NAME.fullmatch(path.name):
            number = int(named[1])
            found[_LAST - number if len(named[1]) == _DIGITS else number] = path
    return dict(sorted(found.items(), reverse=True))


def path(folder: Path, version: int) -> Path:
    """Where the manifest of a version lies."""
    return Path(folder, "_versions", f"{_LAST - version:0{_DIGITS}}.manifest")


def read(path: Path) -> Manifest:
    """A manifest.

    Raises:
        TornError: it is not whole.
        FileNotFoundError: it is not there.
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
        return _manifest(content, message)
    except (KeyError, ValueError) as error:
        raise TornError("its fields cannot be read") from error


def _manifest(content: bytes, message: bytes) -> Manifest:
    files: list[File] = []
    version = 0
    for number, value in _fields(message):
        if number == _VERSION:
            version = _int(value)
        elif number == _FRAGMENTS:
            files += _fragment(_bytes(value))
        elif number == _INDEX_SECTION:
            for field, index in _fields(_message(content, _int(value))):
                if field == _INDEXES:
                    files += _index(_bytes(index))
    if not version:
        raise TornError("it names no version")
    return Manifest(version, files)


def _fragment(message: bytes) -> Iterator[File]:
    fields = list(_fields(message))
    # protobuf leaves out numbers that are 0
    fragment = next((_int(value) for number, value in fields if number == _FRAGMENT_ID), 0)
    for number, value in fields:
        if number == _DATA_FILES:
            held = dict(_fields(_bytes(value)))
            yield File(f"data/{_bytes(held[_DATA_PATH]).decode()}", _int(held.get(_DATA_SIZE, 0)))
        elif number == _DELETIONS:
            held = dict(_fields(_bytes(value)))
            kind = "bin" if held.get(_DELETION_KIND) else "arrow"
            since, drawn = (_int(held.get(n, 0)) for n in (_DELETION_VERSION, _DELETION_ID))
            yield File(f"_deletions/{fragment}-{since}-{drawn}.{kind}")


def _index(message: bytes) -> Iterator[File]:
    fields = list(_fields(message))
    drawn = dict(_fields(_bytes(dict(fields)[_INDEX_UUID])))
    folder = f"_indices/{uuid.UUID(bytes=_bytes(drawn[_UUID_BYTES]))}"
    for number, value in fields:
        if number == _INDEX_FILES:
            held = dict(_fields(_bytes(value)))
            size = _int(held.get(_INDEX_SIZE, 0))
            yield File(f"{folder}/{_bytes(held[_INDEX_PATH]).decode()}", size)


def _message(content: bytes, start: int) -> bytes:
    if start + _LENGTH.size > len(content):
        raise TornError("a part of it lies beyond its end")
    (length,) = _LENGTH.unpack_from(content, start)
    message = content[start + _LENGTH.size : start + _LENGTH.size + length]
    if len(message) != length:
        raise TornError("a part of it lies beyond its end")
    return message


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Numbers and values of a protobuf message's fields."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value: Value
        if kind == 0:
            value, at = _varint(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
            value = 0
        elif kind == 2:
            length, at = _varint(message, at)
            value = message[at : at + length]
            at += length
        else:
            raise TornError("its fields cannot be read")
        if number == 0 or at > len(message):
            raise TornError("its fields cannot be read")
        yield number, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise TornError("its fields cannot be read")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _int(value: Value) -> int:
    if not isinstance(value, int):
        raise TornError("its fields cannot be read")
    return value


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise TornError("its fields cannot be read")
    return value
