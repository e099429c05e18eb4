"""A LanceDB database whose tables are checked before their first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import lancedb
import pyarrow as pa
from lancedb.table import AsyncTable

from service.errors import StoreError, disk_fault
from service.index.storage.volume import Volume


async def connect(
    uri: str, volume: Volume | None = None, session: lancedb.Session | None = None
) -> Database:
    """A database whose every read sees what any process has committed before.

    Args:
        uri: of its folder.
        volume: where it lies; without one nothing is checked, mended or synced.
        session: the caches; the database has caches of its own unless given.
    """
    database = Database(uri, volume, session)
    await database.open()
    return database


def bounded(size: int) -> lancedb.Session:
    """Caches of LanceDB that together hold at most so many bytes, for several databases.

    LanceDB's own bounds are 6 GiB for parts of indexes and 1 GiB for metadata; the ratio is kept.
    """
    metadata = size // 7
    return lancedb.Session(size - metadata, metadata)


async def table_names(database: Database) -> list[str]:
    """Names of all tables, sorted, those included that were deleted and are not yet gone."""
    names: list[str] = []
    token = None
    while True:
        page = await database.list_tables(page_token=token)
        names += page.tables
        token = page.page_token
        if not token:
            return sorted(names)


class Database:
    """Tables below one folder; ``connect`` makes one.

    Args:
        uri: of the folder.
        volume: where it lies.
        session: the caches.
    """

    def __init__(
        self, uri: str, volume: Volume | None, session: lancedb.Session | None = None
    ) -> None:
        self.uri = uri
        self.volume = volume
        self._session = session
        self._connection: lancedb.AsyncConnection | None = None

    async def open(self) -> lancedb.AsyncConnection | None:
        """The connection; None where its folder is missing and the volume read-only."""
        if self._connection is None:
            try:
                # with the default interval, None, a table once opened never sees another
                # process's writes
                self._connection = await lancedb.connect_async(
                    self.uri, read_consistency_interval=timedelta(0), session=self._session
                )
            except OSError as error:
                fault = disk_fault(error)
                if fault is None or fault.reason != "EROFS":
                    raise
        return self._connection

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

    async def open_table(self, name: str) -> AsyncTable:
        """A table, checked if this process opens it for the first time.

        Raises:
            ValueError: there is none of that name.
            StoreError: it is torn and cannot be mended, or the store is gone.
        """
        connection = await self._present()
        if self.volume is None:
            return await connection.open_table(name)
        await self.volume.mend(self.uri, name)
        try:
            opened = await connection.open_table(name)
        except (ValueError, RuntimeError) as error:
            if missing(error):
                await self._check()
                raise
            if not await self.volume.mend(self.uri, name, again=True):
                raise
            opened = await connection.open_table(name)
        self.volume.opened(self.uri, name)
        return opened

    async def find(self, name: str) -> AsyncTable | None:
        """A table, or None where there is none of that name; nothing is written."""
        if await self.open() is None:
            return None
        try:
            return await self.open_table(name)
        except (ValueError, RuntimeError) as error:
            if not missing(error):
                raise
            return None

    async def provide(self, name: str, schema: pa.Schema) -> AsyncTable:
        """A table, created where there is none of that name."""
        found = await self.find(name)
        return found or await self.create_table(name, schema=schema, exist_ok=True)

    async def create_table(self, name: str, *given: Any, **options: Any) -> AsyncTable:
        """Create a table, as LanceDB does.

        Raises:
            StoreError: the store is gone: none is made in its place.
        """
        await self._check()
        made = await (await self._present()).create_table(name, *given, **options)
        if self.volume is not None:
            self.volume.opened(self.uri, name)
        return made

    async def drop_table(self, name: str, *, ignore_missing: bool = False) -> None:
        """Remove a table."""
        await (await self._present()).drop_table(name, ignore_missing=ignore_missing)

    async def mend(self, name: str) -> bool:
        """Check a table anew, which was opened and is not what it should be.

        Returns:
            Whether it is another version now.
        """
        return self.volume is not None and await self.volume.mend(self.uri, name, again=True)

    async def sync(self) -> None:
        """Return when all that was written before is durable, as far as was asked for."""
        if self.volume is not None:
            await self.volume.sync()

    async def freeing(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work that frees space, also where the volume is full; it may be done twice."""
        if self.volume is None:
            await work()
        else:
            await self.volume.freeing(work)

    async def _present(self) -> lancedb.AsyncConnection:
        connection = await self.open()
        if connection is None:
            raise StoreError("the volume of index_path is read-only", "EROFS")
        return connection

    async def _check(self) -> None:
        if self.volume is not None:
            await self.volume.check(now=True)


def missing(error: Exception) -> bool:
    """Whether LanceDB says that a table is not there; it has no type of its own for it.

    The first is said of a table that is not there, the second of one that was dropped after it was
    opened.
    """
    return "was not found" in str(error) or "Not found" in str(error)
