"""Finds the newest version of a table that can be read, without trusting its files.

A power failure leaves files that were not yet on disk empty, short, full of zeros or missing, and
LanceDB believes the lengths in its files: one wrong bit can make it request so much memory that
the process ends. So a process of its own first opens each table and reads a row of each of its
files. A commit is synced before it is acknowledged, so a power failure tears only versions that no
client got an answer for: they are moved aside, and the version before them becomes the newest.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import multiprocessing
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import util
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import structlog

from service import executors
from service.errors import StoreError
from service.precedence import give_way

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("docsplit.index")

QUARANTINE = "quarantine"
# Writes of more than this time cannot have waited for one sync: such damage is no torn commit, and
# an older version would hide acknowledged documents.
TORN_SECONDS = 60.0
# versions that may end the process before the table is refused
_MOST_ENDED = 3
# tables with nothing that must survive a power failure
_EXPENDABLE = {"leases"}
_IDLE_SECONDS = 10.0
_NAME = re.compile(r"(\d+)\.manifest")
# names of 20 digits count down from here, so that a listing begins with the newest
_LAST, _DIGITS = 2**64 - 1, 20
_MAGIC = b"LANC"


class EndedError(Exception):
    """A call ended the process that it ran in."""


class Apart:
    """Calls functions in a process of their own, which ends when it has had nothing to do.

    Only the calls of the coroutine that holds the lock run, so one that ends the process fails
    alone.
    """

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._lock = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        self._end: util.Finalize | None = None

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function of a module.

        Raises:
            EndedError: the function ended the process.
            RuntimeError: the function raised an error; the text is the same.
        """
        async with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            if self._pool is None:
                # a fork of this process would hold the locks of its threads
                context = multiprocessing.get_context("forkserver")
                self._pool = ProcessPoolExecutor(1, context, initializer=_begin)
                if self._end is not None:
                    self._end()
                # A process that multiprocessing started waits for its own before it ends, and
                # closes the queue before, by which this one would be asked to end.
                self._end = util.Finalize(self, self._pool.shutdown, exitpriority=100)
            try:
                future = self._pool.submit(_plainly, call, args, kwargs)
                found: T = await asyncio.wrap_future(future)
            except BrokenProcessPool as gone:
                self.close()
                raise EndedError("reading it ended the process") from gone
            self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self.close)
            return found

    def close(self) -> None:
        """End the process; the next call starts another."""
        if self._idle is not None:
            self._idle.cancel()
        if self._pool is not None and self._end is not None:
            # the event loop does not wait for it, but the end of this process does
            ending = threading.Thread(target=self._pool.shutdown)
            ending.start()
            self._end.cancel()
            self._end = util.Finalize(self, ending.join, exitpriority=100)
            self._pool = None


def _begin() -> None:
    give_way()
    # otherwise it would wait for ever for the next call of a service that was killed
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    # LanceDB says there why it ends the process
    silent = os.open(os.devnull, os.O_RDWR)
    for standard in (1, 2):
        os.dup2(silent, standard)


def _end_with_the_service() -> None:
    service = multiprocessing.parent_process()
    if service is not None:
        service.join()
        os._exit(1)


def _plainly(call: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    try:
        return call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 the caller raises it
        # not every error of a library survives the way to the other process
        raise RuntimeError(str(error)[:300]) from None


def fault(folder: str, version: int) -> str | None:
    """What is wrong with the files of a version of a table; reads a row of each fragment."""
    import lance

    try:
        table = lance.dataset(folder, version=version)
        if not table.schema.names:
            return "its manifest has no columns"
        for index in table.describe_indices():
            for part in index.segments:
                files = list(Path(folder, "_indices", part.uuid).iterdir())
                size = sum(file.stat().st_size for file in files)
                if (part.size_bytes or size) != size or not all(map(_complete, files)):
                    return f"files of the index {index.name} are torn"
        for fragment in table.get_fragments():
            fragment.to_table(limit=1)
    except Exception as error:  # noqa: BLE001 LanceDB panics on some damage
        return str(error).partition(", /")[0][:300]
    return None


def _complete(file: Path) -> bool:
    with file.open("rb") as held:
        size = held.seek(0, os.SEEK_END)
        held.seek(max(0, size - len(_MAGIC)))
        return held.read() == _MAGIC


def versions(folder: Path) -> dict[int, Path]:
    """The manifests of a table by version, the newest first."""
    found = {}
    with suppress(FileNotFoundError):
        for path in (folder / "_versions").iterdir():
            if (named := _NAME.fullmatch(path.name)) is not None:
                number = int(named[1])
                found[_LAST - number if len(named[1]) == _DIGITS else number] = path
    return dict(sorted(found.items(), reverse=True))


async def recover(apart: Apart, database: Path, table: str) -> int:
    """Make the newest readable version of a table the current one.

    Safe while other processes read and write the table: it never moves a whole version.

    Args:
        database: folder of the table, below ``index_path``.
        table: its name, without ``.lance``.

    Returns:
        The number of versions that were moved aside.

    Raises:
        StoreError: no version can be read, or the folder cannot be written.
    """
    folder = database / f"{table}.lance"
    torn: dict[int, tuple[Path, os.stat_result]] = {}
    reason, ended, readable = "", 0, None
    for number, path in versions(folder).items():
        try:
            state = path.stat()
        except FileNotFoundError:
            # removed between the listing and now
            continue
        try:
            said = await apart.run(fault, str(folder), number)
        except (EndedError, RuntimeError) as error:
            said = str(error)
            ended += 1
        if said is None:
            readable = number
            break
        torn[number] = (path, state)
        reason = reason or said
        if ended == _MOST_ENDED:
            break
    if not torn:
        return 0
    times = [state.st_mtime for _, state in torn.values()]
    if readable is not None and max(times) - min(times) > TORN_SECONDS:
        readable = None
    data = folder / "data"
    lost = table in _EXPENDABLE or not (data.is_dir() and any(data.iterdir()))
    if readable is None and not lost:
        log.error("version_unreadable", table=table, reason=reason)
        raise StoreError(
            "no version of a table of this index can be read: restore a backup of the store, or "
            "embed the documents again from their texts",
            "damaged",
        )
    try:
        # a table whose creation did not finish, or of leases, goes as a whole
        moved, aside = await executors.STORE.run(
            _move, database, folder, list(torn.values()), readable is None
        )
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "unknown")
        log.error("version_unreadable", table=table, reason=f"and nothing can be moved: {name}")
        raise StoreError(
            "a table of the store is torn, and the service cannot repair it because it cannot "
            "write to index_path",
            "torn",
        ) from error
    for number in torn if moved else ():
        log.error(
            "version_unreadable",
            table=table,
            version=number,
            reason=reason,
            now=readable,
            moved_to=str(aside),
        )
    return len(torn) if moved else 0


def _move(
    database: Path, folder: Path, torn: list[tuple[Path, os.stat_result]], whole: bool
) -> tuple[bool, Path]:
    """Move torn manifests, or the whole folder, aside, unless another process has done so."""
    place = database.parent / QUARANTINE
    aside = place / database.name / f"{folder.stem}.{time.time_ns()}"
    paths = [folder] if whole else [path for path, _ in torn]
    with _exclusive(place):
        # once the other process has done so, its next commit has the name of the torn version
        if not all(_unchanged(path, state) for path, state in torn):
            return False, aside
        aside.mkdir(parents=True)
        for path in paths:
            path.rename(aside / path.name)
    for changed in (paths[0].parent if paths[0] == folder else folder / "_versions", aside):
        descriptor = os.open(changed, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return True, aside


def _unchanged(path: Path, before: os.stat_result) -> bool:
    with suppress(FileNotFoundError):
        now = path.stat()
        return (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    return False


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
