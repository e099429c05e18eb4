"""Finds out which documents the unreadable rows of an index held."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa

from service.index.storage import layout, manifest
from service.integrity import reading
from service.integrity.reader import Reader

# LanceDB's name of the index over the column ``id``, and the file of it that holds the ids
_ID_INDEX = "id_idx"
_ENTRIES = "page_data.lance"


async def by_index(
    reader: Reader,
    folder: Path,
    held: manifest.Manifest,
    fragment: int,
    found: pa.Table,
) -> dict[int, str]:
    """The ids of rows of a fragment by row id, as the index over ids has them.

    The index lacks the latest rows, and has some deleted ones.

    Args:
        folder: of the table.
        held: its newest version.
        found: the readable rows, with ``_rowid``; the index must agree with them.
    """
    ids: dict[int, str] = {}
    for file in held.indices.get(_ID_INDEX, []):
        if file.path.endswith(_ENTRIES):
            try:
                ids |= await reader.run(reading.indexed, folder / file.path, fragment)
            except Exception:  # noqa: BLE001 a damaged index can raise any error
                return {}
    read = zip(found["_rowid"].to_pylist(), found["id"].to_pylist(), strict=True)
    return ids if all(ids.get(row, name) == name for row, name in read) else {}


async def by_versions(
    reader: Reader, folder: Path, newest: manifest.Manifest, present: Collection[str]
) -> dict[str, int]:
    """Documents of former versions that the newest one lacks, with the version.

    A deleted document leaves a tombstone for days. So a document that was in a version of the last
    minutes and has no row now was in an unreadable row.

    Args:
        folder: of the table.
        newest: its newest version before the repair.
        present: ids of all readable rows, tombstones among them.
    """
    database, table = str(folder.parent), folder.name.removesuffix(".lance")
    seen = {tuple(fragment.paths) for fragment in newest.fragments}
    found: dict[str, int] = {}
    for version, path in layout.manifests(folder).items():
        try:
            held = manifest.read(folder / path)
        except (OSError, manifest.TornError):
            continue
        fresh = [f for f in held.fragments if tuple(f.paths) not in seen]
        seen.update(tuple(fragment.paths) for fragment in fresh)
        for fragment in fresh:
            try:
                ids = await reader.run(
                    reading.former_ids, database, table, version, fragment.number
                )
            except Exception:  # noqa: BLE001, S112 its files may be damaged, or removed already
                continue
            for name in ids:
                if name not in present:
                    found.setdefault(name, version)
    return found
