"""Compaction and index building, by one process at a time, while all read and write on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog
from lancedb.index import IvfHnswSq
from lancedb.table import AsyncTable

from service.errors import ConflictError, NotFoundError
from service.index.indexes import Indexes
from service.index.storage.manifest import KEEP_VERSIONS

log = structlog.get_logger("docsplit.index")

COMMITS = 64  # after so many commits the fragments are put together
QUIET_SECONDS = 5.0  # or when nothing was written for so long
LEASE_SECONDS = 600.0
_NEVER = timedelta(days=36_500)
# microseconds; a copy that was read from a generation before that was deleted is long written
KEEP_TOMBSTONES = 15 * 60 * 1_000_000
# below, comparing with every vector is exact and takes a few milliseconds
VECTOR_INDEX_ROWS = 20_000


class Maintainer:
    """Optimizes indexes that this process wrote to.

    Args:
        indexes: what to look after; of each the served bundle's generation.
        done: told the name of an index that was optimized.
    """

    def __init__(self, indexes: Indexes, done: Callable[[str], Awaitable[None]]) -> None:
        self._indexes = indexes
        self._done = done
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
        index = await self._indexes.writable(name)
        lease = index.table.name
        if not await self._indexes.leases.acquire(lease, LEASE_SECONDS):
            return
        started = time.monotonic()
        try:
            if len(await self._indexes.generations(name)) == 1:
                await index.purge(time.time_ns() // 1000 - KEEP_TOMBSTONES)
            await optimize(index.table, self._indexes.database.sync)
        finally:
            await self._indexes.leases.release(lease)
        seconds = round(time.monotonic() - started, 2)
        log.info("index_optimized", index=name, seconds=seconds)
        await self._done(name)


async def optimize(table: AsyncTable, sync: Callable[[], Awaitable[None]] | None = None) -> None:
    """Put small fragments together, bring the indexes up to date, build the vector index.

    Readers and writers go on; a write that meets the compaction is repeated by LanceDB.

    Args:
        table: of an index.
        sync: brings what was written to disk, before the versions that it replaces are removed.
    """
    await table.optimize(cleanup_older_than=_NEVER)
    if sync is not None:
        await sync()
    await table.optimize(cleanup_older_than=KEEP_VERSIONS)
    built = {index.columns[0] for index in await table.list_indices()}
    if "vector" not in built and await table.count_rows() >= VECTOR_INDEX_ROWS:
        await table.create_index("vector", config=IvfHnswSq(distance_type="cosine"))
