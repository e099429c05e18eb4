"""Leases: only one process at a time does a piece of work."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress

import pyarrow as pa
import structlog

from service.index import sql
from service.index.replicas.silence import Silence
from service.index.rows.keyed import KeyedTable, Row
from service.index.sql import Sql
from service.index.storage.database import Database
from service.logs import outline

log = structlog.get_logger("docsplit.index")

# a process that works renews its lease this often, or three times before the lease expires
_RENEWAL_SECONDS = 3.0
_RELEASED = 0.0
# after this many writes the table is tidied: most of them replace a row
_WRITES = 100


class Leases:
    """Named leases in a LanceDB table: the first conditional write gets the lease.

    The clocks of two processes may differ. So a process takes a lease from another only if the
    lease has not been renewed for some time by the process's own clock.

    Args:
        database: holds the table.
    """

    def __init__(self, database: Database) -> None:
        columns = {"name": pa.string(), "holder": pa.string(), "expires": pa.float64()}
        self._table = KeyedTable(database, "leases", **columns)
        self._holder = uuid.uuid4().hex
        self._silence = Silence()

    async def acquire(self, name: str, seconds: float) -> bool:
        """Whether this process now holds the lease; its own lease is renewed."""
        row = await self._table.get(name)
        if row is not None and not self._free(row, seconds):
            return False
        expires, unchanged = time.time() + seconds, row is not None and _unchanged(row)
        try:
            await _whole(self._write(name, expires, unchanged))
            row = await self._table.get(name)
        except asyncio.CancelledError:
            # the caller does not learn that it has the lease, so it would never release it
            with suppress(Exception):
                await self.release(name)
            raise
        return row is not None and row["holder"] == self._holder

    async def release(self, name: str) -> None:
        """Release the lease."""
        await self._write(name, _RELEASED, sql.compare("target.holder", "=", self._holder))

    @asynccontextmanager
    async def kept(self, name: str, seconds: float) -> AsyncIterator[None]:
        """Renew a lease that this process holds until the block ends, then release it."""

        async def prolong() -> None:
            usual = pause = min(seconds / 3, _RENEWAL_SECONDS)
            while True:
                await asyncio.sleep(pause)
                try:
                    await self.acquire(name, seconds)
                    pause = usual
                except Exception as error:  # noqa: BLE001 the lease lasts for several more tries
                    log.warning("lease_not_renewed", lease=name, outline=outline(error))
                    pause = min(seconds / 20, usual)

        task = asyncio.create_task(prolong())
        try:
            yield
        finally:
            task.cancel()
            await _whole(self._release_after(task, name))

    async def _release_after(self, renewal: asyncio.Task[None], name: str) -> None:
        await asyncio.gather(renewal, return_exceptions=True)
        await self.release(name)

    def _free(self, row: Row, seconds: float) -> bool:
        """Whether this process may take a lease: it is its own, released, or its holder ended."""
        if row["holder"] == self._holder or row["expires"] == _RELEASED:
            return True
        sign = row["holder"], row["expires"]
        return self._silence.ended(row["name"], sign, row["expires"], seconds)

    async def _write(self, name: str, expires: float, replace: bool | Sql) -> None:
        row = {"name": name, "holder": self._holder, "expires": expires}
        await self._table.put(row, replace=replace)
        await self._table.tidy_sometimes(_WRITES)


async def _whole(work: Coroutine[None, None, None]) -> None:
    """Do work to its end even if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _unchanged(row: Row) -> Sql:
    """The condition that no process has changed the lease since ``row`` was read."""
    return sql.every(
        sql.compare("target.holder", "=", row["holder"]),
        sql.compare("target.expires", "=", row["expires"]),
    )
