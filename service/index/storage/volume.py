"""The folder or bucket of a store: checks that it exists, is whole, is synced, and has space."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import structlog

from service.errors import StoreError, disk_fault
from service.executors import Pool
from service.index.storage import bucket
from service.index.storage.bucket import Bucket
from service.index.storage.folder import Disk, Place
from service.index.storage.recovery import Apart, recover

if TYPE_CHECKING:
    from obstore.store import ObjectStore

log = structlog.get_logger("docsplit.index")

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
            table: its name.
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
