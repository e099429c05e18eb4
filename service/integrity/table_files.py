"""Repairs the files of a table: flips single wrong bits, and moves other damaged files aside."""

import hashlib
import json
import os
import struct
import time
from pathlib import Path

import pyarrow as pa

from service.index.storage import files, layout, ledger, manifest
from service.integrity import flips, own, recorded
from service.integrity.outcome import Outcome


def repair(root: Path, database: str, table: str, outcome: Outcome) -> set[str]:
    """Restore a table's files as far as possible, and its newest whole version; blocks.

    Returns:
        Files that a version needs and that stay damaged or missing.
    """
    folder, name = layout.folder(root, database, table), f"{database}/{table}"
    recorder = ledger.Recorder(root)
    for file, what in ledger.read(root, database, table).damaged:
        recorder.rewrite(file)
        outcome.repaired.append(f"{name}: record of digests {file.name}: {what}: left out")
    known = ledger.read(root, database, table)
    bad: set[str] = set()
    for path in sorted(known.entries.keys() & set(layout.files(folder))):
        if files.changed(folder / path, known.entries[path]) is None:
            continue
        if flip_wrong_bit(folder / path, known.entries[path]):
            outcome.repaired.append(f"{name}: file {path}: one wrong bit corrected")
        else:
            bad.add(path)
    entries = [entry for held in known.entries.values() for entry in held]
    bad.update(path for path, _ in ledger.lost(folder, entries))
    bad.update(_unreadable(folder))
    _versions(root, database, table, bad, outcome)
    own.forget_synced(root, database, table, outcome)
    transactions = [path for path in bad if path.startswith("_transactions/")]
    if transactions:
        set_aside(root, database, table, transactions)
        outcome.repaired.append(f"{name}: {len(transactions)} notes of former commits moved aside")
    if recorded.hint(folder):
        newest = max(layout.manifests(folder), default=None)
        if newest is not None:
            write(folder / layout.HINT, json.dumps({"version": newest}, separators=(",", ":")))
            outcome.repaired.append(f"{name}: file {layout.HINT}: written again")
    needed: set[str] = set()
    for path in layout.manifests(folder).values():
        held = manifest.read(folder / path)
        if not needed:
            # the newest version comes first
            bad.update(files.miscounted(folder, held))
        needed.update(held.paths)
    bad.update(p for p in needed if not (folder / p).exists() and "_transactions" not in p)
    return {path for path in bad if path.startswith(("data/", "_deletions/", "_indices/"))}


def flip_wrong_bit(file: Path, entries: list[ledger.Entry]) -> bool:
    """Restore a file that has one wrong bit; False if that does not restore it."""
    content = file.read_bytes()
    for entry in entries:
        whole = flips.corrected(content, entry.crc) if len(content) == entry.size else None
        if whole is None:
            continue
        if hashlib.blake2b(whole, digest_size=16).hexdigest() == entry.digest:
            write(file, whole)
            return True
    return False


def write(file: Path, content: bytes | str) -> None:
    """Replace a file in one step; it is on disk when this returns."""
    scratch = file.with_name(f"{file.name}#repaired")
    with scratch.open("wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
        stream.flush()
        os.fsync(stream.fileno())
    scratch.replace(file)


def set_aside(root: Path, database: str, table: str, paths: list[str]) -> Path:
    """Move files of a table to the quarantine, and cancel the records of their digests."""
    folder = layout.folder(root, database, table)
    aside = quarantine(root, database, table)
    for path in paths:
        if (folder / path).exists():
            place = aside / (path.removeprefix("_versions/"))
            place.parent.mkdir(parents=True, exist_ok=True)
            (folder / path).rename(place)
    ledger.Recorder(root).forget(database, table, paths)
    return aside


def quarantine(root: Path, database: str, table: str) -> Path:
    """A new folder for damaged files of a table."""
    aside = root / ledger.QUARANTINE / database / f"{table}.{time.time_ns()}"
    aside.mkdir(parents=True)
    return aside


def write_no_deletions(file: Path) -> None:
    """Replace an unreadable file of deletions with one that deletes no row."""
    file.parent.mkdir(exist_ok=True)
    if file.suffix == ".bin":
        # an empty roaring bitmap: its cookie, and no containers
        write(file, struct.pack("<II", 12346, 0))
        return
    sink = pa.BufferOutputStream()
    schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
    with pa.ipc.new_file(sink, schema) as stream:
        stream.write_batch(pa.record_batch([pa.array([], pa.uint32())], schema=schema))
    write(file, sink.getvalue().to_pybytes())


def _unreadable(folder: Path) -> set[str]:
    bad = set()
    for path in layout.manifests(folder).values():
        try:
            manifest.read(folder / path)
        except (OSError, manifest.TornError):
            bad.add(path)
    return bad


def _versions(root: Path, database: str, table: str, bad: set[str], outcome: Outcome) -> None:
    """Move damaged manifests aside, so that the newest whole version becomes the current one."""
    damaged = {n: path for path in bad if (n := layout.version_of(path)) is not None}
    if not damaged:
        return
    name, folder = f"{database}/{table}", layout.folder(root, database, table)
    newest = max({*layout.manifests(folder), *damaged})
    whole = [number for number in layout.manifests(folder) if number not in damaged]
    if not whole and database != "indexes":
        aside = quarantine(root, database, table)
        folder.rename(aside / folder.name)
        ledger.forget_table(root, database, table)
        outcome.lost.append(f"{name}: the whole table; services create an empty one")
        return
    if not whole:
        outcome.left.append(f"{name}: no version is whole: restore it from a backup")
        return
    aside = set_aside(root, database, table, list(damaged.values()))
    if max(whole) < newest:
        outcome.lost.append(
            f"{name}: versions {max(whole) + 1} to {newest}: their writes and deletions; "
            f"version {max(whole)} is the newest again"
        )
    else:
        outcome.repaired.append(f"{name}: {len(damaged)} former versions moved to {aside.name}")
