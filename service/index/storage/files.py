"""Finds damaged files of a table before LanceDB reads them."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa

from service.index.storage import layout, ledger, manifest

# The beginnings of a roaring bitmap, and the entry of each of its parts. The second beginning also
# holds the number of parts, in its upper half, and a bit for each part follows.
_PLAIN, _RUNS = 12346, 12347
_PART = struct.Struct("<HH")

# files up to this size are compared before a table is opened, in some hundredths of a second
_OPENED_BYTES = 32 * 2**20


def first_damaged(root: Path, database: str, table: str) -> str | None:
    """A file that the newest version needs and that differs from its record; blocks.

    LanceDB trusts the lengths in its files: one wrong bit can make it request so much memory that
    the process ends. So a process compares the smaller files before it opens a table; those hold
    the lengths of others.
    """
    folder = layout.folder(root, database, table)
    newest = next(iter(layout.manifests(folder).values()), None)
    if newest is None:
        return None
    known = ledger.read(root, database, table).entries
    try:
        version = manifest.read(folder / newest)
    except (OSError, manifest.TornError):
        needed = [newest]
    else:
        needed = [newest, *version.paths]
        # those of the last seconds have no record yet
        for path in miscounted(folder, version):
            if path not in known:
                return path
    held = sorted((known[path][0].size, path) for path in needed if path in known)
    total = 0
    for size, path in held:
        total += size
        if total > _OPENED_BYTES:
            break
        if changed(folder / path, known[path]) is not None:
            return path
    return None


def miscounted(folder: Path, held: manifest.Manifest) -> list[str]:
    """Lists of deleted rows whose length is not the one that a version names."""
    found = []
    for fragment in held.fragments:
        if fragment.deletions is None:
            continue
        try:
            if _deleted(folder / fragment.deletions) != fragment.deleted:
                found.append(fragment.deletions)
        except FileNotFoundError:
            # ``ledger.lost`` and the needs of the versions show it
            continue
        except (pa.ArrowException, OSError, struct.error):
            found.append(fragment.deletions)
    return found


def _deleted(file: Path) -> int:
    """The number of rows in a list of deleted rows; allocates nothing by its lengths."""
    if file.suffix == ".arrow":
        with pa.memory_map(str(file)) as content:
            rows: int = pa.ipc.open_file(content).read_all().num_rows
            return rows
    content = file.read_bytes()
    [start] = struct.unpack_from("<I", content)
    if start == _PLAIN:
        [parts], place = struct.unpack_from("<I", content, 4), 8
    elif start & 0xFFFF == _RUNS:
        parts = (start >> 16) + 1
        place = 4 + (parts + 7) // 8
    else:
        return -1
    entries = content[place : place + parts * _PART.size]
    return sum(rows + 1 for _, rows in _PART.iter_unpack(entries)) if parts else 0


def changed(file: Path, entries: list[ledger.Entry]) -> str | None:
    """How a file differs from its record; None if it does not."""
    try:
        size, digest, _ = ledger.measure(file)
    except FileNotFoundError:
        # ``ledger.lost`` decides whether it should exist
        return None
    except OSError as error:
        return f"unreadable: {error.strerror}"
    wrong = [entry for entry in entries if (entry.size, entry.digest) != (size, digest)]
    if not wrong:
        return None
    if not size:
        return f"emptied: it had {wrong[0].size} bytes"
    if size < wrong[0].size:
        return f"truncated: it has {size} of {wrong[0].size} bytes"
    return "changed: it does not match its recorded digest"
