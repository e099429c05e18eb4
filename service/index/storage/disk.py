"""Brings commits to disk before they are acknowledged; many commits share a sync."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import structlog

from service.errors import StoreError, errno_name
from service.index.storage import manifest
from service.index.storage.recovery import note_synced

log = structlog.get_logger("docsplit.index")

# before Linux 5.8 syncfs does not report pages that could not be written
_REPORTING_KERNEL = (5, 8)
# seconds by which the times of files may be behind this process's clock
_CLOCK_MARGIN = 10.0


class Disk:
    """Syncs the file system of a folder.

    One sync runs at a time, and all callers during it share the next: a sync covers every commit
    that ended before it began.

    After a failed sync the kernel marks pages as clean that are not on disk, so the next sync would
    succeed without them (https://wiki.postgresql.org/wiki/Fsync_Errors). Every later sync is
    therefore refused until the process restarts and checks the files.

    Args:
        path: of the folder.
        executor: runs the syncs.
    """

    def __init__(self, path: Path, executor: Executor) -> None:
        self._path = path
        self._executor = executor
        self._next: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._failed: StoreError | None = None
        self._opened: set[Path] = set()
        self._noted: dict[Path, int] = {}
        self._flush: Callable[[], None] | None = None

    @property
    def failed(self) -> bool:
        """Whether a sync failed, so that all later ones are refused."""
        return self._failed is not None

    def opened(self, table: Path) -> None:
        """Note an opened table: its newest version may need a sync."""
        self._opened.add(table)

    async def sync(self) -> None:
        """Return when all writes before the call are on disk.

        Raises:
            StoreError: this sync, or an earlier one, failed.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
            # all callers may be gone when it fails
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._next)

    async def _after(self, former: asyncio.Task[None] | None) -> None:
        if former is not None:
            await asyncio.wait((former,))
        self._running, self._next = self._next, None
        if self._failed is None:
            opened, self._opened = self._opened, set()
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._executor, self._sync, opened)
            except OSError as error:
                name = errno_name(error)
                log.error("sync_failed", reason=name, path=str(self._path))
                self._failed = StoreError(
                    "the volume of index_path could not store a write, so the service "
                    "accepts no more writes: repair the volume, then restart the service",
                    "sync",
                )
        if self._failed is not None:
            raise StoreError(str(self._failed), "sync")

    def _sync(self, opened: set[Path]) -> None:
        # read before the sync: these versions are complete, so the sync covers them
        versions = {table: version for table in opened if (version := _hint(table))}
        if self._flush is None:
            self._flush = _flusher(self._path)
        self._flush()
        for table, version in versions.items():
            if self._noted.get(table) != version:
                note_synced(table, version)
                self._noted[table] = version


def _hint(table: Path) -> int:
    """The newest version of a table in LanceDB's hint, which may lag behind; 0 for none."""
    try:
        hint = (table / "_versions" / "latest_version_hint.json").read_bytes()
        version = int(json.loads(hint)["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    # the hint may name a torn version that was moved aside
    return version if manifest.path(table, version).exists() else 0


def _flusher(path: Path) -> Callable[[], None]:
    """The function that syncs a folder: one system call if that reports errors."""
    numbers = re.match(r"(\d+)\.(\d+)", platform.release())
    kernel = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if sys.platform == "linux" and kernel >= _REPORTING_KERNEL:
        library = ctypes.CDLL(None, use_errno=True)
        # an open descriptor receives the errors since the last call
        descriptor = os.open(path, os.O_RDONLY)

        def whole() -> None:
            if library.syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))

        return whole
    return _Files(path).flush


class _Files:
    """Syncs each file and folder that changed since the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._since = 0.0

    def flush(self) -> None:
        began = time.time() - _CLOCK_MARGIN
        for folder, _, names in os.walk(self._path, topdown=False):
            for name in (*names, "."):
                self._one(os.path.join(folder, name))
        self._since = began

    def _one(self, path: str) -> None:
        try:
            if os.stat(path).st_ctime < self._since:
                return
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            # an unfinished file that was renamed or removed
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
