"""Leases: only one process at a time does a piece of work."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow as pa
import structlog

from service.index.rows.keyed import KeyedTable
from service.index.storage.database import Database
from service.logs import outline

log = structlog.get_logger("docsplit.index")

# after this many writes, former versions of the table are removed
_WRITES = 100


class Leases:
    """Named leases in a LanceDB table: the first conditional write gets the lease.

    Args:
        database: holds the table.
    """

    def __init__(self, database: Database) -> None:
        columns = {"name": pa.string(), "holder": pa.string(), "expires": pa.float64()}
        self._table = KeyedTable(database, "leases", **columns)
        self._holder = uuid.uuid4().hex
        self._writes = 0

    async def acquire(self, name: str, seconds: float) -> bool:
        """Whether this process now holds the lease; its own lease is renewed."""
        free = f"target.expires < {time.time()!r} OR target.holder = '{self._holder}'"
        await self._write(name, seconds, free)
        row = await self._table.get(name)
        return row is not None and row["holder"] == self._holder

    async def release(self, name: str) -> None:
        """Release the lease."""
        await self._write(name, 0, f"target.holder = '{self._holder}'")

    @asynccontextmanager
    async def kept(self, name: str, seconds: float) -> AsyncIterator[None]:
        """Renew a lease that this process holds until the block ends, then release it."""

        async def prolong() -> None:
            pause = seconds / 3
            while True:
                await asyncio.sleep(pause)
                try:
                    await self.acquire(name, seconds)
                    pause = seconds / 3
                except Exception as error:  # noqa: BLE001 the lease lasts for several more tries
                    log.warning("lease_not_renewed", lease=name, outline=outline(error))
                    pause = seconds / 20

        task = asyncio.create_task(prolong())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.release(name)

    async def _write(self, name: str, seconds: float, where: str) -> None:
        expires = time.time() + seconds if seconds else 0.0
        row = {"name": name, "holder": self._holder, "expires": expires}
        await self._table.put(row, replace=where)
        self._writes += 1
        if self._writes % _WRITES == 0:
            await self._table.tidy()
