"""The place of a store: whether it is there and still the same, syncs of commits, and faults."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import structlog

from service.errors import StoreError, disk_fault, errno_name
from service.executors import Pool
from service.index.storage import bucket
from service.index.storage.bucket import NAME, Bucket, checksum_of, content
from service.index.storage.recovery import Apart, recover

if TYPE_CHECKING:
    from obstore.store import ObjectStore

log = structlog.get_logger("docsplit.index")

# number of the file's fields before it had a checksum
_FIELDS_BEFORE = 2

# device, inode, size and time of change
Stat = tuple[int, int, int, int]


class Place:
    """A store's folder; its identity distinguishes it from an empty mount point and other stores.

    All calls block.
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
    if len(held) > _FIELDS_BEFORE and held.get("checksum") != checksum_of(held):
        raise ValueError("the identity does not match its checksum")
    return name


class Disk:
    """Syncs the file system of a folder.

    One sync runs at a time, and all callers during it share the next: a sync covers every commit
    that ended before it began.

    After a failed sync the kernel marks pages as clean that are not on disk, so the next sync would
    succeed without them (https://wiki.postgresql.org/wiki/Fsync_Errors). Every later sync is
    therefore refused until the process restarts.
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


T = TypeVar("T")

Durability = Literal["fsync", "commit"]

# how long a check of the identity file is valid
LOOK_SECONDS = 1.0
# how often the service checks without requests that the store still exists
WATCH_SECONDS = 2.0
# the same for a bucket, whose requests cost money; while it is away, WATCH_SECONDS
BUCKET_WATCH_SECONDS = 10.0
# how long the service keeps the refusal of a bucket that has no conditional writes
UNSAFE_SECONDS = 60.0
# one for a sync, one for checks at the same time
_THREADS = 2


class Volume:
    """A process's work on the folder of its store, apart from LanceDB's reads and writes.

    Args:
        path: of the folder. A path with ``://`` is an object store, which confirms a write only
            when it is durable; there this only checks that the store can be used.
        durability: whether commits are synced.
        recovered: called with the number of versions that could not be read.
        timeout: seconds that a request to an object store may take.
    """

    def __init__(
        self,
        path: str,
        durability: Durability,
        recovered: Callable[[int], None],
        timeout: float = 5.0,
    ) -> None:
        self._local = "://" not in path
        self._bucket = Bucket(path, timeout) if path.startswith("s3://") else None
        self._claimed = False
        self._durability = durability
        self._recovered = recovered
        self._executor = Pool("disk", _THREADS)
        folder = Path(path)
        self._place = Place(folder) if self._local else None
        self._disk = Disk(folder, self._executor)
        self._looking = asyncio.Lock()
        self._looked = float("-inf")
        self._gone: StoreError | None = None
        self._apart = Apart()
        self._whole: set[tuple[str, str]] = set()
        self._failed_write = ""

    @property
    def up(self) -> bool:
        """Whether the store existed at the last check."""
        return self._gone is None

    @property
    def trouble(self) -> str | None:
        """The reason why the store does not work, in one word, as in ``StoreError.reason``."""
        if self._gone is not None:
            return self._gone.reason
        return "sync" if self._disk.failed else self._failed_write or None

    @property
    def options(self) -> dict[str, str] | None:
        """LanceDB's options for connections to the store."""
        return None if self._bucket is None else self._bucket.options

    def objects(self, uri: str) -> ObjectStore | None:
        """A client for the objects below a prefix of the bucket; None for a folder."""
        return None if self._bucket is None else self._bucket.objects(uri)

    @property
    def watch_seconds(self) -> float:
        """Seconds until the next check without requests."""
        return WATCH_SECONDS if self._bucket is None or not self.up else BUCKET_WATCH_SECONDS

    async def claim(self) -> None:
        """Find the store, or start a new one in an empty folder; check what a bucket can do.

        Raises:
            StoreError: the former store is gone, or the bucket cannot be used.
            OSError: the folder cannot be created or written.
        """
        if self._bucket is not None:
            kept = UNSAFE_SECONDS if self.trouble in ("unsafe", "unsupported") else LOOK_SECONDS
            # many requests share a refusal, so that they do not wait for each other's probes
            if self._gone is None or time.monotonic() - self._looked > kept:
                await self._judge(self._bucket.claim)
                self._looked = time.monotonic()
            self._raise()
        if self._place is not None:
            await self._run(self._place.claim)
        self._claimed = True

    async def check(self, *, now: bool = False) -> None:
        """Raise StoreError if the store is gone.

        A folder is checked once a second, or ``now``; a bucket only ``now``, once it is claimed.
        """
        asked = time.monotonic()
        if self._bucket is not None:
            old = now and self._claimed
        else:
            old = self._local and (now or asked - self._looked > LOOK_SECONDS)
        if old:
            async with self._looking:
                # another call may have checked in between
                if self._looked < asked:
                    began = time.monotonic()
                    await self._look()
                    self._looked = began
        self._raise()

    async def _look(self) -> None:
        if self._bucket is not None:
            await self._judge(self._bucket.look)
        elif self._place is not None:
            await self._judge(self._place.look)

    async def _judge(self, look: Callable[[], object]) -> None:
        """Note whether a check finds the store."""
        try:
            await self._run(look)
        except StoreError as error:
            if self._gone is None:
                log.error("store_gone", reason=str(error), cause=bucket.cause(error.__cause__))
            self._gone = error
        else:
            if self._gone is not None:
                log.info("store_back")
            self._gone = None

    def _raise(self) -> None:
        if self._gone is not None:
            raise StoreError(str(self._gone), self._gone.reason, headers=self._gone.headers)

    async def fault(self, error: Exception) -> StoreError | None:
        """The store's fault behind an error of LanceDB or the system; None if it has none."""
        if isinstance(error, StoreError):
            return error
        fault = disk_fault(error)
        if fault is not None:
            self._failed_write = fault.reason
            return fault
        try:
            if self._claimed:
                await self.check(now=True)
        except StoreError as gone:
            return gone
        return bucket.fault(error)

    async def sync(self) -> None:
        """Return when all writes before the call are as durable as the settings ask.

        Raises:
            StoreError: the sync failed.
        """
        if self._local and self._durability == "fsync":
            await self._disk.sync()

    async def verify(self, database: str, table: str, *, again: bool = False) -> bool:
        """Make sure that the newest version of a table can be read, once in each process.

        Args:
            database: folder of the table's database.
            again: check even if this process has checked before.

        Returns:
            Whether versions were moved aside.

        Raises:
            StoreError: none can be read, or a torn one cannot be moved aside.
        """
        if not self._local or ((database, table) in self._whole and not again):
            return False
        removed = await recover(self._apart, Path(database), table)
        self._whole.add((database, table))
        if removed:
            self._recovered(removed)
        return bool(removed)

    def wrote(self) -> None:
        """Note that a write succeeded."""
        self._failed_write = ""

    def close(self) -> None:
        """Stop the threads and the process that reads files."""
        self._apart.close()
        self._executor.shutdown(wait=False)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)
