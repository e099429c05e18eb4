"""The folder of a store: whether it is there and still the same, and syncs of its commits."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import uuid
import zlib
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from service.errors import StoreError, errno_name

log = structlog.get_logger("docsplit.index")

NAME = "docsplit-store.json"
_FORMAT = 1
# number of the file's fields before it had a checksum
_FIELDS_BEFORE = 2

# device, inode, size and time of change
Stat = tuple[int, int, int, int]


class Place:
    """A store's folder; its identity distinguishes it from an empty mount point and other stores.

    All calls block.

    Args:
        path: of the folder.
    """

    def __init__(self, path: Path) -> None:
        self._file = path / NAME
        self._path = path
        self._id: str | None = None
        self._stat: Stat | None = None
        self._folder: tuple[int, int] | None = None
        # so that a mount lost before the first request does not count as a new store
        with suppress(OSError, ValueError):
            self._remember()

    def claim(self) -> None:
        """Find the store, or start a new one in an empty folder.

        Raises:
            StoreError: the former store is gone, or another is in its place.
            OSError: the folder cannot be created or written.
        """
        if self._id is None:
            self._path.mkdir(parents=True, exist_ok=True)
            try:
                self._remember()
            except (FileNotFoundError, ValueError):
                self._provide()
            self._folder = self._inode()
        self.look()

    def look(self) -> None:
        """Raise StoreError if the store is gone, or another is in its place."""
        try:
            there = self._is_same() if self._id is not None else self._inode() == self._folder
        except OSError:
            there = False
        if not there:
            raise StoreError(
                "the store at index_path is gone, or another one is in its place: check the mount",
                "gone",
            )

    def _is_same(self) -> bool:
        stat = _stat(self._file)
        if stat == self._stat:
            return True
        try:
            same = identity(self._file) == self._id
        except ValueError:
            # the file is damaged, and the folder is still the same
            if self._inode() != self._folder:
                return False
            self._write(self._id or "", replace=True)
            log.warning("identity_restored", path=str(self._file))
            same = True
        if same:
            self._stat = _stat(self._file)
        return same

    def _remember(self) -> None:
        stat = _stat(self._file)
        self._id = identity(self._file)
        self._stat = stat
        self._folder = self._inode()

    def _provide(self) -> None:
        damaged = self._file.exists()
        try:
            self._write(uuid.uuid4().hex, replace=damaged)
        except OSError:
            # a store that is only readable existed before there were such files
            if not (self._path / "indexes").is_dir():
                raise
            return
        self._remember()

    def _write(self, name: str, *, replace: bool) -> None:
        scratch = self._file.with_name(f".{NAME}.{uuid.uuid4().hex}")
        try:
            with scratch.open("x") as file:
                file.write(content(name))
                file.flush()
                os.fsync(file.fileno())
            if replace:
                scratch.replace(self._file)
            else:
                # if several replicas start a store, the first one decides
                with suppress(FileExistsError):
                    os.link(scratch, self._file)
        finally:
            scratch.unlink(missing_ok=True)
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _inode(self) -> tuple[int, int]:
        held = self._path.stat()
        return held.st_dev, held.st_ino


def _stat(path: Path) -> Stat:
    held = path.stat()
    return held.st_dev, held.st_ino, held.st_size, held.st_ctime_ns


def content(name: str) -> str:
    """What the file of an identity holds."""
    held = {"id": name, "format": _FORMAT}
    return json.dumps(held | {"checksum": _checksum(held)}) + "\n"


def identity(path: Path) -> str:
    """The identity in a file.

    Raises:
        ValueError: the file has none, or a damaged one.
    """
    held = json.loads(path.read_bytes())
    if not isinstance(held, dict) or not isinstance(held.get("id"), str):
        raise ValueError("no identity")
    name = str(held["id"])
    # earlier versions wrote no checksum
    if len(held) > _FIELDS_BEFORE and held.get("checksum") != _checksum(held):
        raise ValueError("the identity does not match its checksum")
    return name


def _checksum(held: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps([held.get('id'), held.get('format')]).encode()):08x}"


class Disk:
    """Syncs the file system of a folder.

    One sync runs at a time, and all callers during it share the next: a sync covers every commit
    that ended before it began.

    After a failed sync the kernel marks pages as clean that are not on disk, so the next sync would
    succeed without them (https://wiki.postgresql.org/wiki/Fsync_Errors). Every later sync is
    therefore refused until the process restarts.

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
        self._flush: Callable[[], None] | None = None

    @property
    def failed(self) -> bool:
        """Whether a sync failed, so that all later ones are refused."""
        return self._failed is not None

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
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._executor, self._sync)
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

    def _sync(self) -> None:
        if self._flush is None:
            self._flush = _flusher(self._path)
        self._flush()


def _flusher(path: Path) -> Callable[[], None]:
    """The function that syncs the file system of a folder."""
    if sys.platform != "linux":
        return os.sync
    library = ctypes.CDLL(None, use_errno=True)
    # since Linux 5.8 an open descriptor receives the errors since the last call
    descriptor = os.open(path, os.O_RDONLY)

    def whole() -> None:
        if library.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return whole
