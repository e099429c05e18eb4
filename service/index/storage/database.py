"""A LanceDB database that checks tables before their first use, and pins of versions.

A pin keeps a version from removal while a process reads it for a long time. It is a Lance tag
whose name ends with the time at which it expires, so the pin of a killed process ends by itself.
LanceDB never removes a tagged version. It refuses every cleanup that would reach one, so
maintenance removes no versions while a pin holds.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
import warnings
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from weakref import WeakSet

import lancedb
import pyarrow as pa
import structlog
from lancedb.table import AsyncTable
from prometheus_client import Gauge

from service import executors
from service.errors import StoreError, disk_fault
from service.index.row_cache import RowCache
from service.index.storage.volume import Volume

log = structlog.get_logger("docsplit.index")

# readers of an older version have ended by then: above the default of max_request_timeout
KEEP_VERSIONS = timedelta(minutes=15)
# an interrupted reader has this long to continue
PIN_SECONDS = 86_400
# an age that no version has
NEVER = timedelta(days=36_500)
# Time for what LanceDB does between the call and the removal, as a share of the time that versions
# are kept: a minute of 15.
_SLACK = 15
_PIN = re.compile(r"docsplit-pin-([0-9a-f]+)-(\d+)")


async def older_than(table: AsyncTable, keep: timedelta) -> timedelta:
    """The age above which Lance may remove versions, so that each stays while readers need it.

    Lance compares when a version was committed. But a version that was committed long ago may have
    been current until a moment ago, and readers or a backup still have it. So the newest version of
    at least the age ``keep`` stays, and this age lies above its own.

    Args:
        table: whose versions are removed at once after this call.
        keep: how long a version stays after the next one has replaced it.
    """
    found = await table.list_versions()  # type: ignore[no-untyped-call]
    now = time.time()
    old = now - keep.total_seconds()
    # The library gives local times, and one hour comes twice when summer ends. Read as the second
    # one (fold=1), no version seems older than it is; read as the first, none seems younger.
    first = [_time(held["timestamp"], fold=0) for held in found]
    last = [_time(held["timestamp"], fold=1) for held in found]
    current = max((a for a, b in zip(first, last, strict=True) if b <= old), default=None)
    if current is None:
        return NEVER
    gone = [b for b in last if b <= current - keep.total_seconds() / _SLACK]
    # Hardly younger than the newest version that goes, so a removal that begins late removes no
    # other one. The library rounds to milliseconds.
    return timedelta(seconds=max(now - max(gone) - 0.001, 0.001)) if gone else NEVER


def _time(local: datetime, fold: int) -> float:
    return local.replace(fold=fold).timestamp()


async def pin(table: AsyncTable, owner: str, version: int | None = None) -> int:
    """Pin a version of a table, or prolong a pin.

    Args:
        table: not checked out at another version.
        owner: hex digits that name the reader.
        version: to pin; the newest one by default.

    Returns:
        The pinned version.

    Raises:
        RuntimeError, ValueError: the version is gone, or the store is not writable.
    """
    former = [tag for tag, of, _ in await _pins(table) if of == owner]
    tag = f"docsplit-pin-{owner}-{int(time.time()) + PIN_SECONDS}"
    if tag not in former:
        pinned = version or await table.version()
        await table.tags.create(tag, pinned)
        if version is None and (newest := await table.version()) != pinned:
            # a cleanup that began before the tag may remove the former version, but no new one
            await table.tags.update(tag, newest)
    for other in former:
        if other != tag:
            await table.tags.delete(other)
    return await table.tags.get_version(tag)


async def unpin(table: AsyncTable, owner: str | None = None) -> None:
    """Remove the pins of a reader, or of all readers."""
    for tag, of, _ in await _pins(table):
        if owner in (None, of):
            await table.tags.delete(tag)


async def pinned(table: AsyncTable) -> bool:
    """Whether any pin holds; removes expired ones."""
    found = False
    for tag, _, until in await _pins(table):
        if until > time.time():
            found = True
        else:
            # another process may have removed it
            with suppress(RuntimeError, ValueError):
                await table.tags.delete(tag)
    return found


async def _pins(table: AsyncTable) -> list[tuple[str, str, int]]:
    """Names, owners and ends of all pins."""
    named = ((tag, _PIN.fullmatch(tag)) for tag in await table.tags.list())
    return [(tag, match[1], int(match[2])) for tag, match in named if match is not None]


# uvloop runs lancedb's hook for forks before a subprocess begins its own program: the warning
# would stand between the lines of the service's log
warnings.filterwarnings("ignore", "lancedb fork support", RuntimeWarning)

# LanceDB keeps indexes over words in its caches until these are full, also those that a maintenance
# has replaced. It counts a tenth of their memory, because each has a copy of the data that segments
# texts: 128 take some 115 MB. So the caches are replaced when they hold more than one for each such
# part of their limit, or a quarter as many replaced ones. The least number may always be there.
WORD_INDEX_BYTES = 1 << 20
LEAST_WORD_INDEXES = 16
# in the error of a write that lost ten conflicts
OVERTAKEN = "Too many concurrent writers"
# start of the names of folders in which new tables are made
NEW = ".new-"
# between two looks at the indexes of a table: a look may read a file
LOOK_SECONDS = 1.0


async def connect(uri: str, volume: Volume | None = None, caches: Caches | None = None) -> Database:
    """A database in which every read sees all earlier commits of all processes.

    Args:
        volume: of the folder; without one nothing is checked or synced.
        caches: of LanceDB; by default the database has its own.
    """
    database = Database(uri, volume, caches)
    await database.open()
    return database


class Caches:
    """LanceDB's caches for several databases, limited to a number of bytes as LanceDB counts them.

    LanceDB has no operation that empties its caches. So they are replaced, and the databases
    connect again. A request in progress keeps the former caches until it ends.

    Args:
        size: the limit; an eighth is for ``row_cache``. LanceDB's own limits are 6 GiB for parts of
            indexes and 1 GiB for metadata; the ratio stays.
        shown: shows how many bytes the caches hold.
    """

    def __init__(self, size: int, shown: Gauge | None = None) -> None:
        self.row_cache = RowCache(size // 8)
        self._size = size - size // 8
        self._most_word_indexes = max(LEAST_WORD_INDEXES, size // WORD_INDEX_BYTES)
        self._databases: WeakSet[Database] = WeakSet()
        self._begin()
        if shown is not None:
            shown.set_function(lambda: self.session.size_bytes + self.row_cache.size_bytes)

    def register(self, database: Database) -> None:
        """Call ``disconnect`` of a database whenever the caches are replaced."""
        self._databases.add(database)

    async def note(self, name: str, table: AsyncTable) -> None:
        """Note the indexes over words of a table that a search is about to use.

        Args:
            table: it stays at its version.
        """
        now = time.monotonic()
        if now < self._looks.get(name, -math.inf) + LOOK_SECONDS:
            return
        self._looks[name] = now
        version = await table.version()
        if self._versions.get(name) == version:
            return
        self._versions[name] = version
        found = await table.list_indices()
        self._current[name] = {str(one.index_uuid) for one in found if one.index_type == "FTS"}
        self._word_indexes |= self._current[name]
        held, current = len(self._word_indexes), sum(map(len, self._current.values()))
        if held > self._most_word_indexes or held - current > self._most_word_indexes // 4:
            log.info("index_caches_replaced", counted_bytes=self.session.size_bytes)
            self._begin()
            for database in self._databases:
                database.disconnect()

    def _begin(self) -> None:
        metadata = self._size // 7
        self.session = lancedb.Session(self._size - metadata, metadata)
        self._looks: dict[str, float] = {}
        self._versions: dict[str, int] = {}
        # of all tables, and those that each table has now
        self._word_indexes: set[str] = set()
        self._current: dict[str, set[str]] = {}


async def refresh(table: AsyncTable) -> None:
    """Let a table that stays at its version see the commits until now."""
    # LanceDB gives the method no types
    untyped: Any = table
    await untyped.checkout_latest()


async def table_names(database: Database) -> list[str]:
    """Names of all tables, sorted, including deleted tables whose files still exist."""
    names: list[str] = []
    token = None
    while True:
        page = await database.list_tables(page_token=token)
        names += page.tables
        token = page.page_token
        if not token:
            return sorted(names)


class Database:
    """Tables below one folder; ``connect`` makes one."""

    def __init__(self, uri: str, volume: Volume | None, caches: Caches | None = None) -> None:
        self.uri = uri
        self.volume = volume
        self.row_cache = RowCache() if caches is None else caches.row_cache
        self._caches = caches
        if caches is not None:
            caches.register(self)
        # without an interval an open table never sees the writes of other processes
        self._intervals = {False: timedelta(0), True: None}
        self._connections: dict[bool, lancedb.AsyncConnection] = {}
        self._connected = False

    async def open(self, *, still: bool = False) -> lancedb.AsyncConnection | None:
        """A connection; None if the folder is missing and the volume read-only.

        Args:
            still: its tables stay at the version that they had when they were opened, or when they
                last wrote.
        """
        if still in self._connections:
            return self._connections[still]
        if self._connected and "://" not in self.uri:
            # LanceDB creates a missing folder, and without its volume the folder is missing
            await self._check()
        session = None if self._caches is None else self._caches.session
        try:
            made = await lancedb.connect_async(
                self.uri,
                read_consistency_interval=self._intervals[still],
                session=session,
                storage_options=None if self.volume is None else self.volume.options,
            )
        except OSError as error:
            fault = disk_fault(error)
            if fault is None or fault.reason != "EROFS":
                raise
            return None
        self._connected = True
        if self._caches is None or self._caches.session is session:
            self._connections[still] = made
        return made

    def disconnect(self) -> None:
        """Connect again before the next use; open tables keep their connection."""
        self._connections.clear()

    async def list_tables(self, page_token: str | None = None) -> Any:
        """A page of names.

        Raises:
            StoreError: the store is gone.
        """
        connection = await self._present()
        page = await connection.list_tables(page_token=page_token)
        if not page.tables:
            await self._check()
        return page

    async def open_table(self, name: str, *, still: bool = False) -> AsyncTable:
        """A table, checked if this process opens it for the first time.

        Args:
            still: keep to the version of now; otherwise each read looks for a newer one.

        Raises:
            ValueError: there is no table of that name.
            StoreError: no version of the table can be read, or the store is gone.
        """
        connection = await self._present(still=still)
        if self.volume is None:
            return await connection.open_table(name)
        await self.volume.verify(self.uri, name)
        try:
            return await connection.open_table(name)
        except (ValueError, RuntimeError) as error:
            if missing(error):
                await self._check()
                raise
            if not await self.volume.verify(self.uri, name, again=True):
                raise
            return await connection.open_table(name)

    async def note(self, table: AsyncTable) -> None:
        """Note the indexes over words of a table that a search is about to use.

        Args:
            table: opened with ``still``.
        """
        if self._caches is not None:
            await self._caches.note(table.name, table)

    async def find(self, name: str, *, still: bool = False) -> AsyncTable | None:
        """A table, or None if there is none of that name; writes nothing.

        Args:
            name, still: as for ``open_table``.
        """
        if await self.open() is None:
            return None
        try:
            return await self.open_table(name, still=still)
        except (ValueError, RuntimeError) as error:
            if not missing(error):
                raise
            return None

    async def provide(self, name: str, schema: pa.Schema, *, still: bool = False) -> AsyncTable:
        """A table, created if there is none of that name; several processes may call this."""
        found = await self.find(name, still=still)
        if found is None:
            await self._create_once(name, schema)
            found = await self.open_table(name, still=still)
        return found

    async def _create_once(self, name: str, schema: pa.Schema) -> None:
        """Create an empty table, unless another process is first.

        LanceDB replaces a table that appears during its creation, with all rows. So it creates the
        table elsewhere, and only one process can create the file of the first version here.
        """
        await self._check()
        await self._present()
        local = "://" not in self.uri
        with tempfile.TemporaryDirectory(prefix=NEW, dir=self.uri if local else None) as folder:
            made = await lancedb.connect_async(folder)
            await made.create_table(name, schema=schema)
            await executors.STORE.run(self._publish, Path(folder))

    def _publish(self, folder: Path) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError
        from obstore.store import LocalStore, from_url

        objects = None if self.volume is None else self.volume.objects(self.uri)
        if objects is None:
            objects = from_url(self.uri) if "://" in self.uri else LocalStore(self.uri)
        with suppress(AlreadyExistsError):
            # the manifest follows the transaction, and the hint the manifest
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                key = path.relative_to(folder).as_posix()
                obstore.put(objects, key, path.read_bytes(), mode="create")

    async def create_table(self, name: str, *given: Any, **options: Any) -> AsyncTable:
        """Create a table of a name that no other process creates.

        Raises:
            StoreError: the store is gone; no new one is made.
        """
        await self._check()
        return await (await self._present()).create_table(name, *given, **options)

    async def drop_table(self, name: str, *, ignore_missing: bool = False) -> None:
        """Remove a table."""
        await (await self._present()).drop_table(name, ignore_missing=ignore_missing)

    async def verify(self, name: str) -> bool:
        """Check an open table again after an unexpected result.

        Returns:
            Whether its version changed.
        """
        return self.volume is not None and await self.volume.verify(self.uri, name, again=True)

    async def sync(self) -> None:
        """Return when all earlier writes are as durable as the settings ask."""
        if self.volume is not None:
            await self.volume.sync()

    async def _present(self, *, still: bool = False) -> lancedb.AsyncConnection:
        connection = await self.open(still=still)
        if connection is None:
            raise StoreError("the volume of index_path is read-only", "EROFS")
        return connection

    async def _check(self) -> None:
        if self.volume is not None:
            await self.volume.check(now=True)


def missing(error: Exception) -> bool:
    """Whether LanceDB says that a table does not exist; it has no error type for this.

    The first message means that there is no such table, the second that it was dropped after it was
    opened.
    """
    return "was not found" in str(error) or "Not found" in str(error)


def conflicting(error: Exception) -> bool:
    """Whether LanceDB gave up a change because others came first; it has no error type for this."""
    return "onflict" in str(error) or OVERTAKEN in str(error)
