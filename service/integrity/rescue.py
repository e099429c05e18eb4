"""Takes the readable rows out of a damaged data file, and names the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from service.index.storage import manifest
from service.integrity import names, reading, salvage
from service.integrity.reader import Reader


@dataclass(frozen=True, slots=True)
class Rescued:
    """The rows of a damaged fragment.

    Attributes:
        rows: the readable ones, with fillers for unreadable values.
        lost: ids of unreadable ones.
        unnamed: number of unreadable ones whose ids are unknown.
    """

    rows: pa.Table
    lost: list[str]
    unnamed: int


async def rescue(
    reader: Reader,
    folder: Path,
    newest: manifest.Manifest,
    schema: pa.Schema,
    fragment: manifest.Fragment,
) -> Rescued:
    """Read a damaged fragment as far as possible.

    Args:
        folder: of the table.
        newest: its newest version.
    """
    table = str(folder.parent), folder.name.removesuffix(".lance")
    take = salvage.through(reader, *table)
    found = await salvage.salvage(take, schema, fragment.number, fragment.rows)
    read = set(found["_rowid"].to_pylist())
    missing, lost = fragment.rows - fragment.deleted - len(read), list[str]()
    if missing > 0:
        known = await names.by_index(reader, folder, newest, fragment.number, found)
        try:
            unread = await reader.run(reading.living, *table, fragment.number) - read
        except Exception:  # noqa: BLE001 LanceDB panics on some damage
            # then it is unknown which of its rows were deleted
            known, unread = {}, set()
        lost = sorted(known[row] for row in unread & known.keys())
    return Rescued(found.drop_columns(["_rowid"]), lost, max(missing - len(lost), 0))
