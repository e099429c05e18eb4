"""Digests of the immutable files below ``index_path``, recorded while the files are good.

Every process appends to its own files, ``integrity/<database>/<table>/<holder>.jsonl``. A line is a
JSON list, a blank and a checksum of the list. An object store keeps checksums itself, so the
service records none there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Collection
from dataclasses import astuple, dataclass, field
from pathlib import Path

from service.index.storage import layout, manifest
from service.index.storage.manifest import KEEP_VERSIONS

FOLDER = "integrity"
QUARANTINE = "quarantine"
_CHUNK = 1 << 20
_SUM = 8
# another process takes over a file after this long without a write
_ABANDONED_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A file at the time of its record.

    Attributes:
        path: relative to the table's folder.
        size: in bytes; -1 cancels the earlier records of the path.
        digest: BLAKE2b, 32 hex digits.
        crc: CRC-32.
        modified: modification time of the file, in seconds since the epoch.
        recorded: time of the record, in seconds since the epoch.
    """

    path: str
    size: int
    digest: str
    crc: int
    modified: float
    recorded: float


@dataclass(slots=True)
class Ledger:
    """The records of a table.

    Attributes:
        entries: all valid records, by path.
        damaged: unreadable places in the ledger's files, as file and line.
    """

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    damaged: list[tuple[Path, str]] = field(default_factory=list)


def place(root: Path, database: str, table: str) -> Path:
    """The folder of a table's ledger."""
    return root / FOLDER / database / table


def measure(path: Path) -> tuple[int, str, int]:
    """Size, digest and CRC of a file."""
    digest, crc, size = hashlib.blake2b(digest_size=16), 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
    return size, digest.hexdigest(), crc


def read(root: Path, database: str, table: str) -> Ledger:
    """All valid records of a table."""
    ledger = Ledger()
    found: list[Entry] = []
    for file in sorted(place(root, database, table).glob("*.jsonl")):
        entries, damaged = _lines(file)
        found += entries
        ledger.damaged += [(file, what) for what in damaged]
    void = _moved(root, database, table)
    for entry in found:
        if entry.size < 0:
            void[entry.path] = max(void.get(entry.path, 0.0), entry.recorded)
    for entry in found:
        if entry.size >= 0 and entry.recorded > void.get(entry.path, 0.0):
            ledger.entries.setdefault(entry.path, []).append(entry)
    return ledger


def _lines(file: Path) -> tuple[list[Entry], list[str]]:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return [], []
    if not content:
        return [], ["the file is empty"]
    entries, damaged = [], []
    lines = content.split(b"\n")
    if lines.pop():
        damaged.append("the last line is cut off")
    for number, line in enumerate(lines, start=1):
        entry = _entry(line)
        if entry is None:
            damaged.append(f"line {number}")
        else:
            entries.append(entry)
    return entries, damaged


def _entry(line: bytes) -> Entry | None:
    line, _, checksum = line.rpartition(b" ")
    if _checksum(line) != checksum:
        return None
    try:
        return Entry(*json.loads(line))
    except (ValueError, TypeError):
        return None


def _line(entry: Entry) -> bytes:
    line = json.dumps(astuple(entry), separators=(",", ":")).encode()
    return line + b" " + _checksum(line) + b"\n"


def _checksum(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=_SUM).hexdigest().encode()


def _moved(root: Path, database: str, table: str) -> dict[str, float]:
    """When files of a table were moved aside, by path; a new file may have the name now."""
    found: dict[str, float] = {}
    for folder in (root / QUARANTINE / database).glob(f"{table}.*"):
        since = folder.name.removeprefix(f"{table}.")
        if not since.isdigit():
            continue
        for path in folder.rglob("*"):
            if path.is_file():
                name = path.relative_to(folder).as_posix()
                name = f"_versions/{name}" if name.endswith(".manifest") else name
                name = name.replace("_versions/_versions/", "_versions/")
                found[name] = max(found.get(name, 0.0), int(since) / 1e9)
    return found


class Recorder:
    """Records the files of tables, each table in a file of this process.

    All calls block.

    Args:
        root: ``index_path``.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._holder = uuid.uuid4().hex
        self._needs: dict[Path, list[str]] = {}

    def record(self, database: str, table: str) -> int:
        """Record the files of a table's versions that no process has recorded.

        Returns:
            The number of these files.
        """
        folder = layout.folder(self._root, database, table)
        ledger = read(self._root, database, table)
        fresh = [path for path in self._needed(folder) if path not in ledger.entries]
        entries = [entry for path in sorted(fresh) if (entry := _seen(folder, path)) is not None]
        if entries:
            self._append(database, table, entries)
        self._tidy(database, table, folder)
        return len(entries)

    def record_indexes(self, names: Collection[str]) -> int:
        """Record the tables of some indexes, and the tables that all indexes share."""
        found = layout.tables(self._root)
        chosen = [(d, t) for d, t in found if d != "indexes" or t.split(".")[0] in names]
        return sum(self.record(*one) for one in chosen)

    def forget(self, database: str, table: str, paths: list[str]) -> None:
        """Cancel the records of some files."""
        now = time.time()
        if paths:
            self._append(database, table, [Entry(path, -1, "", 0, 0.0, now) for path in paths])

    def rewrite(self, file: Path) -> None:
        """Keep the readable lines of a ledger's file, and drop the others."""
        entries, _ = _lines(file)
        _replace(file, entries)

    def _append(self, database: str, table: str, entries: list[Entry]) -> None:
        folder = place(self._root, database, table)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{self._holder}.jsonl").open("ab") as file:
            file.write(b"".join(map(_line, entries)))

    def _needed(self, folder: Path) -> set[str]:
        needed: set[str] = set()
        held = {}
        for path in layout.manifests(folder).values():
            file = folder / path
            try:
                needs = self._needs.get(file) or list(manifest.read(file).paths)
            except (OSError, manifest.TornError):
                continue
            held[file] = needs
            needed.update(needs, [path])
        for file in [file for file in self._needs if file.is_relative_to(folder)]:
            del self._needs[file]
        self._needs |= held
        return needed

    def _tidy(self, database: str, table: str, folder: Path) -> None:
        """Drop the records of deleted files; take over files of ended processes."""
        own = place(self._root, database, table) / f"{self._holder}.jsonl"
        old = time.time() - _ABANDONED_SECONDS
        taken: list[Entry] = []
        for file in own.parent.glob("*.jsonl"):
            try:
                if file == own or file.stat().st_mtime > old:
                    continue
            except FileNotFoundError:
                continue
            entries, damaged = _lines(file)
            if not damaged:
                taken += entries
                file.unlink(missing_ok=True)
        entries, damaged = _lines(own)
        gone = [entry for entry in entries if not (folder / entry.path).exists()]
        if damaged or not (taken or len(gone) > len(entries) / 2):
            return
        keep = _wanted(folder, [*entries, *taken])
        _replace(own, [e for e in [*entries, *taken] if e.path in keep or e.size < 0])


def _seen(folder: Path, path: str) -> Entry | None:
    file = folder / path
    try:
        modified = file.stat().st_mtime
        return Entry(path, *measure(file), modified, time.time())
    except OSError:
        # removed during the call, or unreadable: ``check`` reports it
        return None


def _wanted(folder: Path, entries: list[Entry]) -> set[str]:
    missing = {path for path, _ in lost(folder, entries)}
    return {e.path for e in entries if (folder / e.path).exists() or e.path in missing}


def lost(folder: Path, entries: list[Entry]) -> list[tuple[str, str]]:
    """Recorded files that are missing but should exist, each with the reason.

    Old versions are deleted in the order of their age, along with the files that no other version
    needs.
    """
    held = layout.manifests(folder)
    needed: set[str] = set(held.values())
    for path in held.values():
        try:
            needed.update(manifest.read(folder / path).paths)
        except (OSError, manifest.TornError):
            continue
    young = time.time() - KEEP_VERSIONS.total_seconds() + 60
    found = {}
    for entry in entries:
        if entry.size < 0 or (folder / entry.path).exists():
            continue
        number = layout.version_of(entry.path)
        if number is None:
            if entry.path in needed:
                found[entry.path] = "missing, and a version needs it"
        elif number > max(held, default=0):
            found[entry.path] = "missing: it was the newest version"
        elif number > min(held) or entry.modified > young:
            found[entry.path] = "missing: it was a version in between"
    return sorted(found.items())


def _replace(file: Path, entries: list[Entry]) -> None:
    if not entries:
        file.unlink(missing_ok=True)
        return
    scratch = file.with_suffix(".scratch")
    scratch.write_bytes(b"".join(map(_line, entries)))
    os.replace(scratch, file)


def forget_table(root: Path, database: str, table: str) -> None:
    """Remove the ledger of a table that was deleted."""
    shutil.rmtree(place(root, database, table), ignore_errors=True)
