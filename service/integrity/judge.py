"""Decides for each row what is right, what can be computed again, and what is lost."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from service.index.documents import Index
from service.index.rows import checksums, outline, records, vectors
from service.index.rows.checksums import Part
from service.index.rows.record import Encoding, Record, digest
from service.index.rows.versions import microseconds
from service.integrity import rows as reading

_CONTENT = {"head", "links", "text", "digest"}


@dataclass(slots=True)
class Judged:
    """Rows by their treatment.

    Attributes:
        sound: rows to write unchanged, with the time of each.
        stale: content to embed again, with ``updated``.
        tombstones: times of deleted documents, by id.
        lost: ids, or their remains, and the lost parts.
    """

    sound: list[tuple[Record, int]] = field(default_factory=list)
    stale: list[dict[str, Any]] = field(default_factory=list)
    tombstones: dict[str, int] = field(default_factory=dict)
    lost: list[tuple[str, str]] = field(default_factory=list)


def judge(rows: pa.Table, index: Index, *, distrust: bool = False) -> Judged:
    """The treatment of rows; some may be damaged.

    Args:
        rows: all columns.
        distrust: embed rows without checksums again.
    """
    judged = Judged()
    for place, parts in enumerate(reading.faults(rows, index)):
        _row(rows.slice(place, 1), set(parts), index, distrust, judged)
    return judged


def _row(row: pa.Table, bad: set[str], index: Index, distrust: bool, judged: Judged) -> None:
    content = row.drop_columns(["vector", "windows", "window_ends"])
    try:
        [held] = content.to_pylist()
        metadata = json.loads(held["metadata"])
        right = digest(
            held["text"], held["title"], metadata, held["links"], index.identity.revision
        )
    except ValueError:
        name = row["id"].cast(pa.binary())[0].as_py().decode("utf-8", "replace")
        judged.lost.append((name, "content"))
        return
    sealed = held["digest"]
    if _is_deleted(held, bad):
        judged.tombstones[held["id"]] = held["updated"] if "state" not in bad else microseconds()
        return
    fits = right == checksums.content(sealed)
    if bad >= {part.name.lower() for part in Part} and fits and "." in sealed:
        # only the content's digest matches, and it does not cover the id
        name = _turned(row, held["id"])
        if name is None:
            judged.lost.append((held["id"], "id"))
            return
        held["id"], bad = name, set()
    if bad & _CONTENT and not fits:
        judged.lost.append((held["id"], ", ".join(sorted(bad & _CONTENT))))
        return
    # if only the content's digest is damaged, the state matches the right one
    if "state" in bad and not _fits(row, right, Part.STATE):
        held["updated"] = microseconds()
    held["metadata"] = metadata
    unsealed = checksums.unverified(sealed, deleted=False)
    if bad & {"vector", "windows"} or (distrust and unsealed) or row["vector"][0].as_py() is None:
        judged.stale.append(held)
        return
    windows = records.windows(vectors.blobs(row["windows"])[0], row["window_ends"][0].as_py())
    vector = np.asarray(row["vector"][0].as_py(), dtype=np.float32)
    given = Encoding(vector, windows.vectors, windows.ends)
    known = outline.opened(held.get(outline.COLUMN), sealed)
    content_of = (held["id"], held["text"], held["title"], metadata, held["links"])
    record = Record(*content_of, given, known)
    judged.sound.append((record, held["updated"]))


def _is_deleted(held: dict[str, Any], bad: set[str]) -> bool:
    if bad:
        return not held["text"] and not checksums.content(held["digest"])
    return bool(held["deleted"])


def _fits(row: pa.Table, right: str, part: Part) -> bool:
    sealed = row["digest"][0].as_py()
    place = row.schema.get_field_index("digest")
    resealed = f"{right}.{sealed.partition('.')[2]}"
    return not checksums.faults(row.set_column(place, "digest", pa.array([resealed])), part)[0]


def _turned(row: pa.Table, name: str) -> str | None:
    """The id with one bit flipped, so that it matches the row's checksums."""
    whole = name.encode()
    place = row.schema.get_field_index("id")
    for bit in range(len(whole) * 8):
        turned = bytearray(whole)
        turned[bit // 8] ^= 1 << bit % 8
        try:
            guess = bytes(turned).decode()
        except UnicodeDecodeError:
            continue
        if not checksums.faults(row.set_column(place, "id", pa.array([guess])), Part.HEAD)[0]:
            return guess
    return None
