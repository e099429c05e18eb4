"""Brings a table back to its newest whole version after a power failure.

A power failure leaves files that were not yet on disk empty, short, full of zeros or missing. If a
version has such a manifest or needs such a file, the service moves it aside, and the version before
it becomes the newest. A write is synced before it is acknowledged (``service.index.storage.disk``),
so this gives up only versions that no client got an answer for. If an acknowledged version cannot
be read either, the result says so.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from service.errors import StoreError
from service.index.storage import manifest

log = structlog.get_logger("docsplit.index")

QUARANTINE = "quarantine"
# the file in the table's folder that names the newest version known to be on disk
SYNCED = "docsplit-synced"
# tables with nothing that must survive a power failure
_EXPENDABLE = {"leases"}
_ARROW_END = b"ARROW1"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of a table.

    Attributes:
        table: its name.
        version: the newest usable version; None if there is no table any more.
        removed: versions that were moved aside, or would be.
        acknowledged: whether one of them was on disk before, so that its writes are lost.
        reason: the fault of the newest of them.
        aside: the folder that they were moved to.
    """

    table: str
    version: int | None
    removed: list[int] = field(default_factory=list)
    acknowledged: bool = False
    reason: str = ""
    aside: Path | None = None


async def recover(database_uri: str, table: str, executor: Executor | None = None) -> Recovered:
    """Make the newest whole version of a table the current one.

    Safe while other processes read and write the table: only one process at a time does it, and it
    never moves a whole version.

    Args:
        database_uri: folder of the tables of one database, below ``index_path``.
        table: its name, without ``.lance``.
        executor: runs the blocking work; by default a new thread.

    Raises:
        StoreError: no version can be read, or the folder cannot be written.
    """
    loop = asyncio.get_running_loop()
    if executor is not None:
        return await loop.run_in_executor(executor, _recover, Path(database_uri), table)
    with ThreadPoolExecutor(1) as own:
        return await loop.run_in_executor(own, _recover, Path(database_uri), table)


def examine(database: Path, table: str) -> Recovered:
    """The result that ``recover`` would have; changes nothing."""
    folder = database / f"{table}.lance"
    numbers = manifest.versions(folder)
    known = synced(folder)
    if known > max(numbers, default=0):
        # the note belongs to another state of this folder
        known = 0
    bad: list[int] = []
    reason = ""
    readable: int | None = None
    for number, path in numbers.items():
        try:
            held = manifest.read(path)
        except FileNotFoundError:
            # removed between the listing and now
            continue
        except manifest.TornError as error:
            bad.append(number)
            reason = reason or f"its manifest {error}"
            continue
        fault = None if number <= known else _fault(folder, held)
        if fault is None:
            return Recovered(table, number, bad, any(n <= known for n in bad), reason)
        if readable is None:
            readable = number
        bad.append(number)
        reason = reason or fault
    # an older version does not repair damage that all versions share
    bad = [n for n in bad if readable is None or n > readable]
    return Recovered(table, readable, bad, any(n <= known for n in bad), reason if bad else "")


def synced(folder: Path) -> int:
    """The newest version of a table that is known to be on disk; 0 if none is."""
    try:
        return synced_of(Path(folder, SYNCED).read_bytes())
    except (OSError, ValueError):
        return 0


def synced_of(content: bytes) -> int:
    """The version that the file ``SYNCED`` names.

    Raises:
        ValueError: the file is damaged.
    """
    # earlier versions wrote no checksum
    held = re.match(rb"(\d{20})(?: ([0-9a-f]{8}))?\n", content)
    if held is None or (held[2] and held[2] != _checksum(held[1])):
        raise ValueError("no version, or one that does not match its checksum")
    return int(held[1])


def _checksum(number: bytes) -> bytes:
    return b"%08x" % zlib.crc32(number)


def note_synced(folder: Path, version: int) -> None:
    """Write the file that ``synced`` reads; a failure loses no data."""
    try:
        descriptor = os.open(folder / SYNCED, os.O_WRONLY | os.O_CREAT, 0o644)
    except OSError:
        return
    number = b"%020d" % version
    try:
        os.pwrite(descriptor, b"%s %s\n" % (number, _checksum(number)), 0)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _recover(database: Path, table: str) -> Recovered:
    found = examine(database, table)
    if not found.removed:
        return found
    try:
        with _exclusive(database.parent / QUARANTINE):
            return _move(database, examine(database, table))
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "unknown")
        log.error("version_unreadable", table=table, reason=f"and nothing can be moved: {name}")
        raise StoreError(
            "a table of the store is torn, and the service cannot repair it because it cannot "
            "write to index_path",
            "torn",
        ) from error


def _move(database: Path, found: Recovered) -> Recovered:
    if not found.removed:
        # another process did it in between
        return found
    folder = database / f"{found.table}.lance"
    aside = database.parent / QUARANTINE / database.name / f"{found.table}.{time.time_ns()}"
    aside.parent.mkdir(parents=True, exist_ok=True)
    if found.version is not None:
        aside.mkdir()
        paths = manifest.versions(folder)
        for number in found.removed:
            paths[number].rename(aside / paths[number].name)
        if synced(folder) > found.version:
            note_synced(folder, found.version)
        places = [folder / "_versions", aside, aside.parent]
    elif found.table in _EXPENDABLE or not _holds_rows(folder):
        # its creation did not finish, and no client got an answer
        folder.rename(aside)
        places = [database, aside.parent]
    else:
        log.error("version_unreadable", table=found.table, reason="no version can be read")
        raise StoreError(
            "no version of a table of this index can be read: docsplit-index repair NAME "
            "reports what can be restored",
            "torn",
        )
    for place in places:
        _flush(place)
    for number in found.removed:
        log.error(
            "version_unreadable",
            table=found.table,
            version=number,
            reason=found.reason,
            acknowledged=found.acknowledged,
            now=found.version,
            moved_to=str(aside),
        )
    return Recovered(
        found.table, found.version, found.removed, found.acknowledged, found.reason, aside
    )


def _holds_rows(folder: Path) -> bool:
    data = folder / "data"
    return data.is_dir() and any(data.iterdir())


def _fault(folder: Path, held: manifest.Manifest) -> str | None:
    """The first fault in the files of a version."""
    for file in held.files:
        try:
            descriptor = os.open(folder / file.path, os.O_RDONLY)
        except FileNotFoundError:
            return f"{file.path} is missing"
        try:
            fault = _torn(descriptor, file)
        finally:
            os.close(descriptor)
        if fault is not None:
            return f"{file.path} {fault}"
    return None


def _torn(descriptor: int, file: manifest.File) -> str | None:
    size = os.fstat(descriptor).st_size
    if not size or size != (file.size or size):
        return f"has {size} bytes"
    try:
        os.fsync(descriptor)
        # a page that could not be written stays in memory as if it had been: read from the disk
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        if error.errno == errno.EIO:
            return "cannot be written to the disk"
    if file.path.endswith(".bin"):
        return None if any(os.pread(descriptor, 8, 0)) else "begins with zeros"
    end = _ARROW_END if file.path.endswith(".arrow") else manifest.MAGIC
    return None if os.pread(descriptor, len(end), size - len(end)) == end else "is cut off"


@contextmanager
def _exclusive(place: Path) -> Iterator[None]:
    """Keep other processes from moving files; not by a lease, whose table may be torn."""
    place.mkdir(exist_ok=True)
    descriptor = os.open(place / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
