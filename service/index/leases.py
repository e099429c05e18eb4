"""Leases: one of many processes at a time does a piece of work."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pyarrow as pa
from lancedb.expr import col, lit
from lancedb.table import AsyncTable

from service.index.rows.schema import PRIMARY_KEY
from service.index.storage.database import Database
from service.index.storage.manifest import KEEP_VERSIONS

_SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("holder", pa.string(), nullable=False),
        pa.field("expires", pa.float64(), nullable=False),
    ]
)
# every write leaves a version of the table behind
_WRITES = 100


class Leases:
    """Named leases in a LanceDB table: whoever's conditional write lands first has it.

    Args:
        database: where the table lies.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._holder = uuid.uuid4().hex
        self._writes = 0

    async def acquire(self, name: str, seconds: float) -> bool:
        """Whether this process now holds the lease; one that it holds already is prolonged."""
        table = await self._table()
        mine = f"target.expires < {time.time()!r} OR target.holder = '{self._holder}'"
        await self._write(table, name, seconds, mine)
        held = await table.query().where(col("name").eq(lit(name))).to_arrow()
        return bool(held["holder"].to_pylist() == [self._holder])

    async def release(self, name: str) -> None:
        """Give the lease back."""
        await self._write(await self._table(), name, 0, f"target.holder = '{self._holder}'")

    @asynccontextmanager
    async def kept(self, name: str, seconds: float) -> AsyncIterator[None]:
        """Prolong a lease that this process holds until the block ends, then give it back."""

        async def prolong() -> None:
            while True:
                await asyncio.sleep(seconds / 3)
                await self.acquire(name, seconds)

        task = asyncio.create_task(prolong())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.release(name)

    async def _table(self) -> AsyncTable:
        return await self._database.provide("leases", _SCHEMA)

    async def _write(self, table: AsyncTable, name: str, seconds: float, where: str) -> None:
        expires = time.time() + seconds if seconds else 0.0
        row = {"name": [name], "holder": [self._holder], "expires": [expires]}
        merge = table.merge_insert("name").when_matched_update_all(where=where)
        await merge.when_not_matched_insert_all().execute(pa.table(row, schema=_SCHEMA))
        self._writes += 1
        if self._writes % _WRITES == 0:
            # another process's write may come between; then the next one's turn does it
            with suppress(RuntimeError):
                await table.optimize(cleanup_older_than=KEEP_VERSIONS)
