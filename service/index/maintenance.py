"""Compaction and index building, by one process at a time, while all read and write on."""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import timedelta

import lancedb
import pyarrow as pa
import structlog
from lancedb.expr import col, lit
from lancedb.index import IvfHnswSq
from lancedb.table import AsyncTable

from service.index.faults import ConflictError, NotFoundError
from service.index.indexes import Indexes
from service.index.schema import PRIMARY_KEY

log = structlog.get_logger("docsplit.index")

COMMITS = 64  # after so many commits the fragments are put together
QUIET_SECONDS = 5.0  # or when nothing was written for so long
LEASE_SECONDS = 600.0
# readers of an older version must have ended: above max_request_timeout's default
KEEP_VERSIONS = timedelta(minutes=15)
# below, comparing with every vector is exact and takes a few milliseconds
VECTOR_INDEX_ROWS = 20_000

_LEASES = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("holder", pa.string(), nullable=False),
        pa.field("expires", pa.float64(), nullable=False),
    ]
)


class Leases:
    """Named leases in a LanceDB table: whoever's conditional write lands first has it.

    Args:
        database: where the table lies.
    """

    def __init__(self, database: lancedb.AsyncConnection) -> None:
        self._database = database
        self._holder = uuid.uuid4().hex

    async def acquire(self, name: str, seconds: float) -> bool:
        """Whether this process now holds the lease."""
        table = await self._table()
        await self._write(table, name, seconds, f"target.expires < {time.time()!r}")
        held = await table.query().where(col("name").eq(lit(name))).to_arrow()
        return bool(held["holder"].to_pylist() == [self._holder])

    async def release(self, name: str) -> None:
        """Give the lease back."""
        await self._write(await self._table(), name, 0, f"target.holder = '{self._holder}'")

    async def _table(self) -> AsyncTable:
        return await self._database.create_table("leases", schema=_LEASES, exist_ok=True)

    async def _write(self, table: AsyncTable, name: str, seconds: float, where: str) -> None:
        expires = time.time() + seconds if seconds else 0.0
        row = {"name": [name], "holder": [self._holder], "expires": [expires]}
        merge = table.merge_insert("name").when_matched_update_all(where=where)
        await merge.when_not_matched_insert_all().execute(pa.table(row, schema=_LEASES))


class Maintainer:
    """Optimizes indexes that this process wrote to.

    Args:
        indexes: what to look after.
        leases: database of the leases that elect one process.
    """

    def __init__(self, indexes: Indexes, leases: lancedb.AsyncConnection) -> None:
        self._indexes = indexes
        self._leases = Leases(leases)
        self._commits: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wake: dict[str, asyncio.Event] = {}

    def note(self, name: str) -> None:
        """An index was written to."""
        self._commits[name] = self._commits.get(name, 0) + 1
        self._wake.setdefault(name, asyncio.Event()).set()
        if name not in self._tasks or self._tasks[name].done():
            self._tasks[name] = asyncio.create_task(self._run(name))

    async def close(self) -> None:
        """Stop; an optimization that is under way is left and changes nothing."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, name: str) -> None:
        wake = self._wake[name]
        while self._commits[name]:
            while self._commits[name] < COMMITS:
                wake.clear()
                try:
                    async with asyncio.timeout(QUIET_SECONDS):
                        await wake.wait()
                except TimeoutError:
                    break
            self._commits[name] = 0
            try:
                await self._once(name)
            except (NotFoundError, ConflictError):
                return
            except Exception as error:  # noqa: BLE001 the next commit tries again
                log.warning("index_maintenance_failed", index=name, reason=str(error)[:300])

    async def _once(self, name: str) -> None:
        if not await self._leases.acquire(name, LEASE_SECONDS):
            return
        started = time.monotonic()
        try:
            index = await self._indexes.open(name)
            await optimize(index.table)
        finally:
            await self._leases.release(name)
        seconds = round(time.monotonic() - started, 2)
        log.info("index_optimized", index=name, seconds=seconds)


async def optimize(table: AsyncTable) -> None:
    """Put small fragments together, bring the indexes up to date, build the vector index.

    Readers and writers go on; a write that meets the compaction is repeated by LanceDB.
    """
    await table.optimize(cleanup_older_than=KEEP_VERSIONS)
    built = {index.columns[0] for index in await table.list_indices()}
    if "vector" not in built and await table.count_rows() >= VECTOR_INDEX_ROWS:
        await table.create_index("vector", config=IvfHnswSq(distance_type="cosine"))
