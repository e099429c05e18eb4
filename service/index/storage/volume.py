"""The folder below which a store lies: whether it is there, whole, synced, and has room."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, TypeVar

import structlog

from service.errors import StoreError, disk_fault
from service.executors import Pool
from service.index.storage import files, recovery
from service.index.storage.disk import Disk
from service.index.storage.place import Place
from service.index.storage.reserve import BYTES, Reserve

log = structlog.get_logger("docsplit.index")

T = TypeVar("T")

Durability = Literal["fsync", "commit"]

# how long a look at the identity file holds
LOOK_SECONDS = 1.0
# a sync, and looks beside it
_THREADS = 2


class Volume:
    """What a process does with the folder of its store, besides LanceDB's own reads and writes.

    Args:
        path: of the folder; what has ``://`` in it is an object store, which says nothing before
            it is durable: there all of this does nothing.
        durability: whether commits are synced, and torn tables mended.
        recovered: told the number of versions that were given up.
    """

    def __init__(self, path: str, durability: Durability, recovered: Callable[[int], None]) -> None:
        self._local = "://" not in path
        self._durability = durability
        self._recovered = recovered
        self._executor = Pool("disk", _THREADS)
        folder = Path(path)
        self._place = Place(folder) if self._local else None
        self._reserve = Reserve(folder)
        self._disk = Disk(folder, self._executor)
        self._looking = asyncio.Lock()
        self._looked = float("-inf")
        self._gone: StoreError | None = None
        self._whole: set[tuple[str, str]] = set()
        self._failed_write = ""

    @property
    def up(self) -> bool:
        """Whether the store was there at the last look."""
        return self._gone is None

    @property
    def trouble(self) -> str | None:
        """What keeps the store from working in one word, as ``StoreError.reason``."""
        if self._gone is not None:
            return self._gone.reason
        return "sync" if self._disk.failed else self._failed_write or None

    async def claim(self) -> None:
        """Find the store, or begin a new one where nothing is.

        Raises:
            StoreError: the store that was here is gone.
            OSError: the folder cannot be made or written.
        """
        if self._place is not None:
            await self._run(self._place.claim)
            await self._run(self._reserve.keep)

    async def check(self, *, now: bool = False) -> None:
        """Raise StoreError where the store is gone; looked at once a second unless ``now``."""
        asked = time.monotonic()
        if self._place is None:
            return
        if now or asked - self._looked > LOOK_SECONDS:
            async with self._looking:
                # another call may have looked meanwhile
                if self._looked < asked:
                    began = time.monotonic()
                    await self._look(self._place)
                    self._looked = began
        if self._gone is not None:
            raise StoreError(str(self._gone), self._gone.reason)

    async def _look(self, place: Place) -> None:
        try:
            await self._run(place.look)
        except StoreError as error:
            if self._gone is None:
                log.error("store_gone", reason=str(error))
            self._gone = error
        else:
            if self._gone is not None:
                log.info("store_back")
            self._gone = None
            # a deletion may have used it up while nothing was free
            await self._run(lambda: self._reserve.keep(room=BYTES))

    async def sync(self) -> None:
        """Return when all that was written before the call is durable, as far as was asked for.

        Raises:
            StoreError: it cannot be.
        """
        if self._local and self._durability == "fsync":
            await self._disk.sync()

    def opened(self, database: str, table: str) -> None:
        """A table is used, so that the next sync notes its version."""
        if self._local:
            self._disk.opened(Path(database, f"{table}.lance"))

    async def mend(self, database: str, table: str, *, again: bool = False) -> bool:
        """Make sure that the newest version of a table is whole, once in a process.

        Args:
            database: folder of the table's database.
            table: its name.
            again: look although this process has looked before.

        Returns:
            Whether versions were moved aside.

        Raises:
            StoreError: it is torn and is not to be mended here, or cannot be; or a file of it is
                damaged.
        """
        if not self._local or ((database, table) in self._whole and not again):
            return False
        if self._durability == "fsync":
            found = await recovery.recover(database, table, self._executor)
        else:
            found = await self._run(lambda: recovery.examine(Path(database), table))
            if found.removed:
                raise StoreError(
                    "the newest version of a table is torn: docsplit-index repair NAME goes back "
                    "to the one before it",
                    "torn",
                )
        place = Path(database)
        damaged = await self._run(lambda: files.first_damaged(place.parent, place.name, table))
        if damaged is not None:
            log.error("file_damaged", table=table, file=damaged)
            raise StoreError(
                "a file of this table is damaged, so it is not opened: the operator mends it by "
                "docsplit-index repair",
                "damaged",
            )
        self._whole.add((database, table))
        if found.removed:
            self._recovered(len(found.removed))
        return bool(found.removed)

    async def freeing(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do work that frees space, with the reserve where the volume is full.

        Args:
            work: may be done a second time.
        """
        try:
            return await work()
        except Exception as error:
            fault = disk_fault(error)
            if fault is None or fault.reason not in ("ENOSPC", "EDQUOT"):
                raise
            log.warning("reserve_released", reason=fault.reason)
        await self._run(self._reserve.release)
        try:
            return await work()
        finally:
            await self._run(self._reserve.keep)

    def failed(self, fault: StoreError) -> None:
        """A write was refused by the volume."""
        self._failed_write = fault.reason

    def wrote(self) -> None:
        """A write succeeded."""
        self._failed_write = ""

    def close(self) -> None:
        """Let the threads end."""
        self._executor.shutdown(wait=False)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)
