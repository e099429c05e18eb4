"""Checksums of a stored row, by parts: a reader verifies the columns that it reads.

The column ``digest`` holds them after the content's digest, as ``<digest>.<checksums>``. A row of
an earlier version has only the digest and counts as unverified. Earlier versions read and write
tables with either form, so replicas of both versions can share an index.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa

from service.index.rows.vectors import window_blobs

_SIZE = 8
_PLAIN = re.compile("[0-9a-f]{32}")


class Part(IntEnum):
    """The part that one checksum covers; the document's id belongs to each part."""

    HEAD = 0
    LINKS = 1
    STATE = 2
    TEXT = 3
    VECTOR = 4
    WINDOWS = 5


COLUMNS: dict[Part, tuple[str, ...]] = {
    Part.HEAD: ("title", "metadata"),
    Part.LINKS: ("links",),
    Part.STATE: ("updated", "deleted"),
    Part.TEXT: ("text",),
    Part.VECTOR: ("vector",),
    Part.WINDOWS: ("windows", "window_ends"),
}

_STATES = {
    part: hashlib.blake2b(digest_size=_SIZE, person=b"docsplit.row." + str(int(part)).encode())
    for part in Part
}


def columns(*parts: Part) -> list[str]:
    """The columns that ``faults`` needs to verify some parts."""
    return ["id", "digest", *(name for part in parts for name in COLUMNS[part])]


def seal(rows: pa.Table) -> pa.Table:
    """Rows with the checksums of all parts after their digests."""
    names = _raw(rows["id"])
    sums = zip(*(_sums(rows, part, names) for part in Part), strict=True)
    digests = [content(held) for held in rows["digest"].to_pylist()]
    sealed = [
        f"{held}.{base64.urlsafe_b64encode(b''.join(parts)).decode()}"
        for held, parts in zip(digests, sums, strict=True)
    ]
    return _with_digests(rows, sealed)


def restate(rows: pa.Table) -> pa.Table:
    """Sealed rows after a change of their state, with the right checksums."""
    digests = []
    sums = _sums(rows, Part.STATE, _raw(rows["id"]))
    for sealed, made in zip(rows["digest"].to_pylist(), sums, strict=True):
        held = bytearray(_unsealed(sealed))
        held[Part.STATE * _SIZE : (Part.STATE + 1) * _SIZE] = made
        digests.append(f"{content(sealed)}.{base64.urlsafe_b64encode(held).decode()}")
    return _with_digests(rows, digests)


def _with_digests(rows: pa.Table, digests: list[str]) -> pa.Table:
    place = rows.schema.get_field_index("digest")
    return rows.set_column(place, rows.schema.field(place), pa.array(digests, pa.string()))


def content(digest: str) -> str:
    """The content's digest in a value of the column ``digest``."""
    return digest.partition(".")[0]


def unverified(digest: str, deleted: bool) -> bool:
    """Whether a version without checksums wrote a row."""
    return digest == "" if deleted else _PLAIN.fullmatch(digest) is not None


def faults(rows: pa.Table, *parts: Part) -> list[tuple[Part, ...]]:
    """The damaged parts of each row; none if it is sound or unverified.

    Args:
        rows: with ``columns(*parts)``; with ``deleted``, too, if some may be deleted documents.
    """
    # damage can leave bytes that are not UTF-8
    sealed = [digest.decode("utf-8", "replace") for digest in _raw(rows["digest"])]
    gone = rows["deleted"].to_pylist() if "deleted" in rows.schema.names else [False] * len(sealed)
    held = [_unsealed(digest) for digest in sealed]
    skip = [unverified(digest, bool(was)) for digest, was in zip(sealed, gone, strict=True)]
    found: list[list[Part]] = [[] for _ in sealed]
    names = _raw(rows["id"])
    for part in parts:
        place = slice(part * _SIZE, (part + 1) * _SIZE)
        for row, made in enumerate(_sums(rows, part, names)):
            if not skip[row] and held[row][place] != made:
                found[row].append(part)
    return [tuple(bad) for bad in found]


def _unsealed(digest: str) -> bytes:
    """The checksums; empty, which matches no part, if they cannot be read."""
    _, _, sums = digest.partition(".")
    try:
        return base64.b64decode(sums.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def sound(digest: str, document_id: str, parts: Mapping[Part, Sequence[bytes | None]]) -> bool:
    """Whether parts of one row match its checksums; always true for a row without checksums."""
    if unverified(digest, deleted=False):
        return True
    held, name = _unsealed(digest), raw(document_id)
    return all(
        held[part * _SIZE : (part + 1) * _SIZE] == _sum(part, name, payload)
        for part, payload in parts.items()
    )


def texts(column: pa.ChunkedArray) -> list[Any]:
    """Strings of a column; bytes that are not UTF-8 become surrogates, which ``raw`` converts."""
    try:
        held: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        held = [t and t.decode("utf-8", "surrogateescape") for t in _raw(column)]
    return held


def raw(text: str | None) -> bytes | None:
    """A string as the column stores it."""
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _sums(rows: pa.Table, part: Part, names: Sequence[bytes | None]) -> list[bytes]:
    payloads = zip(names, _payloads(rows, part), strict=True)
    return [_sum(part, name, payload) for name, payload in payloads]


def _sum(part: Part, name: bytes | None, payload: Sequence[bytes | None]) -> bytes:
    # each value follows its length, so that no two lists of values give the same bytes
    values = [name, *payload]
    state = _STATES[part].copy()
    state.update(repr([-1 if value is None else len(value) for value in values]).encode())
    for value in values:
        if value is not None:
            state.update(value)
    return state.digest()


def _payloads(rows: pa.Table, part: Part) -> Iterable[Sequence[bytes | None]]:
    held = [rows[name] for name in COLUMNS[part]]
    if part is Part.VECTOR:
        return ([vector] for vector in _vectors(held[0]))
    if part is Part.LINKS:
        return (links or [] for links in _raw(held[0]))
    if part is Part.WINDOWS:
        ends = (np.asarray(end, dtype="<i4").tobytes() for end in held[1].to_pylist())
        return zip(window_blobs(held[0]), ends, strict=True)
    if part is Part.STATE:
        # the state includes the content's digest, so that a changed digest is detected
        digests = (digest.partition(b".")[0] for digest in _raw(rows["digest"]))
        updated = (_number(value) for value in held[0].to_pylist())
        deleted = (_number(value) for value in held[1].to_pylist())
        return zip(digests, updated, deleted, strict=True)
    return zip(*map(_raw, held), strict=True)


def _raw(column: pa.ChunkedArray) -> list[Any]:
    """Strings, or lists of them, as bytes."""
    kind = pa.list_(pa.binary()) if pa.types.is_list(column.type) else pa.binary()
    # unlike a cast, a view of a few rows costs almost nothing
    return [value for chunk in column.chunks for value in chunk.view(kind).to_pylist()]


def _number(value: int | None) -> bytes | None:
    return None if value is None else int(value).to_bytes(8, "little", signed=True)


def _vectors(column: pa.ChunkedArray) -> list[bytes | None]:
    whole = column.combine_chunks()
    there = whole.is_valid().to_pylist()
    flat = np.asarray(whole.flatten(), dtype="<f4").reshape(-1, whole.type.list_size)
    rows = iter(flat)
    return [next(rows).tobytes() if held else None for held in there]
