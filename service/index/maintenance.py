"""Compaction, index building and fits, by one process at a time; reads and writes continue.

Tables of earlier versions also get the columns that they lack.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta

import pyarrow as pa
import structlog
from lancedb.index import IndexConfig
from lancedb.table import AsyncTable

from docsplit.ranking.words import lined
from service import executors
from service.errors import BuildingError, ConflictError, NotFoundError
from service.index import sql
from service.index.documents import Index
from service.index.indexes import Indexes
from service.index.merging import GROWTH_BYTES, Between, size, working
from service.index.rows import derived
from service.index.rows.checksums import Part, texts
from service.index.rows.schema import LACKING, OPTIONAL, indexed, prepare
from service.index.rows.vectors import windows_searchable
from service.index.sql import Sql
from service.index.storage.database import KEEP_VERSIONS, older_than, pinned
from service.logs import outline

log = structlog.get_logger("docsplit.index")

# documents of one commit
CHUNK = 64
# a document that was written since its text was read has its own words
_SAME = sql.every(
    Sql("target.digest = source.digest"), sql.negated(sql.given("target." + derived.WORDS))
)


async def complete(index: Index) -> bool:
    """Whether the table has all columns, and all documents their words and terms.

    ``fill`` takes the documents with the lowest digests last: this looks only at them.
    """
    if _missing(index) or derived.WORDS not in await indexed(index.table):
        return False
    rows = (await index.sample(CHUNK))["_rowid"].to_pylist()
    if not rows:
        return True
    found = await index.table.take_row_ids(rows).select([derived.WORDS]).to_arrow()
    return bool(found[derived.WORDS].null_count == 0)


async def add(index: Index) -> bool:
    """Add the columns that the table lacks, if any; the caller opens the index again."""
    missing = _missing(index)
    if missing:
        await index.table.add_columns(pa.schema(missing))
    return bool(missing)


def _missing(index: Index) -> list[pa.Field]:
    return [field for field in OPTIONAL if field.name not in index.schema.names]


async def fill(index: Index) -> int:
    """Compute the words and terms of all documents that have none; returns their number.

    Reads and writes continue. It skips documents whose text is damaged.
    """
    query = index.table.query().where(LACKING).select(["id", "digest"])
    ids = texts((await query.to_arrow()).sort_by([("digest", "descending")])["id"])
    filled = 0
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        async for found in index.contents(part, Part.TEXT, columns=index.schema.names):
            if not found.num_rows:
                continue
            rows = await executors.STORE.run(_filled, found.select(index.schema.names))
            merge = index.table.merge_insert("id").when_matched_update_all(where=_SAME)
            result = await merge.execute(rows)
            filled += int(result.num_updated_rows)
    await prepare(index.table)
    if ids:
        log.info("index_terms_filled", table=index.table.name, documents=filled)
    return filled


def _filled(found: pa.Table) -> pa.Table:
    held = texts(found["text"])
    ends = found["window_ends"].to_pylist()
    pairs = zip(held, texts(found["digest"]), strict=True)
    for name, made in (
        (derived.TERMS, pa.array([derived.sealed_terms(*pair) for pair in pairs], pa.binary())),
        (derived.WORDS, pa.array(map(lined, held, ends), pa.string())),
    ):
        found = found.set_column(found.schema.get_field_index(name), name, made)
    return found


COMMITS = 64  # after this many commits the small fragments are merged
QUIET_SECONDS = 5.0  # or after this long without a write
LEASE_SECONDS = 600.0
# between two tries to get the lease that another process holds
LEASE_POLL_SECONDS = 5.0
# between two looks at the size of an index
_SIZE_SECONDS = 1.0
# microseconds; every copy that was read before a deletion has been written by then
KEEP_TOMBSTONES = 15 * 60 * 1_000_000
# after a maintenance another one follows, which finds what this one had to leave for so long
AGAIN_SECONDS = KEEP_VERSIONS.total_seconds() * 1.1
# LanceDB warns of an age of 0
_SHORTEST = timedelta(milliseconds=5)
# below this, comparing with every vector is exact and takes a few milliseconds
VECTOR_INDEX_ROWS = 20_000
# of each dimension: as good as 8 bits (docs/explanation/experiments/scale.md, "Vector indexes")
VECTOR_BITS = 4
WINDOW_BITS = 1
# LanceDB builds no such index over other vectors
_MULTIPLE = 8
# LanceDB adds a segment to a vector index of a small table each time, and merges no files across
# segments. With more than these it is built again.
MOST_SEGMENTS = 32
# the same for windows, of which LanceDB compares some hundred in a millisecond
WINDOW_INDEX_WINDOWS = 4096


class Maintainer:
    """Optimizes indexes that this process wrote to.

    Args:
        indexes: to optimize; only generations of the served bundle.
        done: called with the name of each optimized index.
        between: gives for the name of an index a block between two commits to it, or one that
            waits for nothing.
    """

    def __init__(
        self,
        indexes: Indexes,
        done: Callable[[str], Awaitable[None]] | None = None,
        between: Callable[[str], AbstractAsyncContextManager[object]] = lambda _: nullcontext(),
    ) -> None:
        self._indexes = indexes
        self._done = done
        self._between = between
        self._commits: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wake: dict[str, asyncio.Event] = {}
        # bytes after the last maintenance
        self._sizes: dict[str, int] = {}
        # the version after the last maintenance, and the call that looks at what it had to leave
        self._left: dict[str, int] = {}
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._upgrade: asyncio.Task[None] | None = None

    def note(self, name: str) -> None:
        """Note a write to an index."""
        self._commits[name] = self._commits.get(name, 0) + 1
        self._wake.setdefault(name, asyncio.Event()).set()
        if name not in self._tasks or self._tasks[name].done():
            self._tasks[name] = asyncio.create_task(self._run(name))

    def start(self) -> None:
        """Upgrade the tables of earlier versions, once, in the background."""
        # without the context of the request that may have started it
        self._upgrade = asyncio.create_task(self.upgrade(), context=contextvars.Context())

    async def upgrade(self) -> None:
        """Give all documents that lack terms their terms."""
        try:
            for name in await self._indexes.names():
                await self._fill(name)
        except Exception as error:  # noqa: BLE001 searches read the texts instead
            log.warning("index_upgrade_failed", reason=str(error)[:300])

    async def close(self) -> None:
        """Stop; a running optimization is abandoned and changes nothing."""
        for later in self._later.values():
            later.cancel()
        tasks = [*self._tasks.values(), *([self._upgrade] if self._upgrade else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fill(self, name: str) -> None:
        try:
            index = await self._indexes.open(name)
            lease = f"{index.table.name}.terms"
            if await complete(index) or not await self._indexes.leases.acquire(
                lease, LEASE_SECONDS
            ):
                return
            async with self._indexes.leases.kept(lease, LEASE_SECONDS):
                await add(index)
                filled = await fill(await self._indexes.open(name))
        except (BuildingError, NotFoundError, ConflictError):
            return
        if filled:
            self.note(name)

    async def _run(self, name: str) -> None:
        while self._commits[name]:
            try:
                await self._wait(name)
                covered, self._commits[name] = self._commits[name], 0
                if not await self._once(name):
                    self._commits[name] += covered
                    await asyncio.sleep(LEASE_POLL_SECONDS)
            except (NotFoundError, ConflictError):
                return
            except Exception as error:  # noqa: BLE001 the next commit tries again
                self._commits[name] = 0
                if await self._indexes.registry.overtook(error):
                    continue
                log.warning("index_maintenance_failed", index=name, reason=str(error)[:300])

    async def _wait(self, name: str) -> None:
        """Wait until so much was written, or nothing for some time."""
        wake = self._wake[name]
        table = (await self._indexes.writable(name)).table
        before = self._sizes.setdefault(name, await size(table))
        asked = 0.0
        while self._commits[name] < COMMITS:
            wake.clear()
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await wake.wait()
            except TimeoutError:
                return
            if time.monotonic() > asked + _SIZE_SECONDS:
                asked = time.monotonic()
                if await size(table) > before + GROWTH_BYTES:
                    return

    async def _once(self, name: str) -> bool:
        """Whether this process could maintain the index; otherwise another one does so."""
        index = await self._indexes.writable(name)
        lease = index.table.name
        if not await self._indexes.leases.acquire(lease, LEASE_SECONDS):
            return False
        started = time.monotonic()
        async with self._indexes.leases.kept(lease, LEASE_SECONDS):
            if not await maintain(self._indexes, name, index, between=lambda: self._between(name)):
                log.warning("index_files_left", index=name)
            self._sizes[name] = await size(index.table)
            await self._plan(name, index.table)
        seconds = round(time.monotonic() - started, 2)
        log.info("index_optimized", index=name, seconds=seconds)
        if self._done is not None:
            await self._done(name)
        return True

    async def _plan(self, name: str, table: AsyncTable) -> None:
        """Maintain an index once more when its tombstones and former versions may go."""
        version = await table.version()
        if version != self._left.get(name):
            self._left[name] = version
            if (later := self._later.get(name)) is not None:
                later.cancel()
            loop = asyncio.get_running_loop()
            self._later[name] = loop.call_later(AGAIN_SECONDS, self.note, name)


async def maintain(
    indexes: Indexes,
    name: str,
    index: Index,
    step: Callable[[str], None] = lambda _: None,
    *,
    every: bool = False,
    rebuild: bool = False,
    between: Between = nullcontext,
) -> bool:
    """Do all work on an index that its writers leave; the caller holds the lease of its table.

    Args:
        indexes: of the store.
        name: of the index.
        index: to maintain.
        step: called with what begins.
        every, rebuild, between: as for ``optimize``.

    Returns:
        The result of ``optimize``.
    """
    if len(await indexes.generations(name)) == 1:
        await purge(index.table, time.time_ns() // 1000 - KEEP_TOMBSTONES)
    whole = await optimize(
        index.table,
        indexes.database.sync,
        step,
        every=every,
        rebuild=rebuild,
        between=between,
    )
    # opening the table tells the caches the size of its new index over words, even before a search
    database = indexes.database
    await database.note(await database.open_table(index.table.name, still=True))
    try:
        if await indexes.profiles.wanted(index):
            step("fit a profile")
            await indexes.profiles.fit(index)
    except Exception as error:  # noqa: BLE001 the next maintenance tries again
        if not await indexes.registry.overtook(error):
            log.warning("profile_not_fitted", table=index.table.name, outline=outline(error))
    return whole


async def optimize(
    table: AsyncTable,
    sync: Callable[[], Awaitable[None]] | None = None,
    step: Callable[[str], None] = lambda _: None,
    *,
    every: bool = False,
    rebuild: bool = False,
    between: Between = nullcontext,
) -> bool:
    """Merge small fragments, update the indexes, build the vector index.

    Reads and writes continue. LanceDB repeats a write that conflicts with the compaction. While a
    reader has pinned a version, no former version is removed.

    Args:
        table: of an index.
        sync: brings the new files to disk before the versions that they replace are removed.
        step: called with what begins.
        every: merge all small fragments that indexes cover, not only some of them.
        rebuild: whether to build all indexes again.
        between: as for ``working``.

    Returns:
        Whether small files are merged; False if writers changed the same rows each time.

    Raises:
        OSError, RuntimeError: the store fails, or others changed the same indexes.
    """
    async with working(table, between) as work:
        step("merge small files and update the indexes")
        merged = await work.merge(every=every)
        if sync is not None:
            await sync()
        if not await pinned(table):
            step("remove former versions")
            await work.remove(await older_than(table, KEEP_VERSIONS))
        if rebuild:
            step("build the indexes over words and metadata")
        # the process that created the table may have ended before it built them
        await work.prepare(again=rebuild)
        held = {index.columns[0]: index for index in await table.list_indices()}
        for column, what, bits, enough in (
            ("vector", "vectors", VECTOR_BITS, _many_documents),
            ("windows", "windows", WINDOW_BITS, _many_windows),
        ):
            index = held.get(column)
            if (
                index is not None
                and not rebuild
                and _current(index)
                and index.name not in merged.doubled
            ):
                continue
            if await enough(table):
                step(f"build the index over {what}")
                await work.index(column, bits)
            elif index is not None:
                # it would get further segments and never be built again
                await table.drop_index(index.name)
    return merged.whole


def _current(index: IndexConfig) -> bool:
    """Whether a vector index need not be built again; former versions built a graph."""
    return index.index_type == "IvfRq" and (index.num_segments or 1) <= MOST_SEGMENTS


async def _documents(table: AsyncTable) -> int:
    # a deleted document has no vector, and LanceDB builds no index over too few of them
    return await table.count_rows(sql.LIVE)


async def _indexable(table: AsyncTable) -> bool:
    return not (await table.schema()).field("vector").type.list_size % _MULTIPLE


async def _many_documents(table: AsyncTable) -> bool:
    return await _indexable(table) and await _documents(table) >= VECTOR_INDEX_ROWS


async def _many_windows(table: AsyncTable) -> bool:
    if not windows_searchable(await table.schema()) or not await _indexable(table):
        return False
    if await _documents(table) >= WINDOW_INDEX_WINDOWS:
        return True
    ends = (await table.query().select(["window_ends"]).to_arrow())["window_ends"]
    return sum(map(len, ends.to_pylist())) >= WINDOW_INDEX_WINDOWS


async def purge(table: AsyncTable, before: int) -> None:
    """Remove the tombstones from before a time, in microseconds since the epoch."""
    where = sql.every(sql.compare("deleted", "=", True), sql.compare("updated", "<", before))
    if await table.count_rows(where):
        await table.delete(where)


async def erase(
    indexes: Indexes, name: str, index: Index, step: Callable[[str], None] = lambda _: None
) -> int:
    """Remove from the disk what was deleted or replaced; the caller holds the lease of the table.

    Former versions go at once: a search that began before may fail.

    Args:
        indexes: of the store.
        name: of the index.
        index: a generation of it.
        step: called with what begins.

    Returns:
        The number of files that were written again.

    Raises:
        ConflictError: a reader has pinned a former version.
        OSError, RuntimeError: as for ``optimize``.
    """
    table = index.table
    if await pinned(table):
        raise ConflictError("an export reads a former version of the index: erase it afterwards")
    if len(await indexes.generations(name)) == 1:
        await purge(table, time.time_ns() // 1000 - KEEP_TOMBSTONES)
    async with working(table) as work:
        step("write files with deleted texts again")
        written = await work.erase()
    # words of deleted texts stay in the indexes until these are built again
    await optimize(table, indexes.database.sync, step, every=True, rebuild=True)
    await indexes.database.sync()
    async with working(table) as work:
        step("remove former versions")
        await asyncio.sleep(2 * _SHORTEST.total_seconds())
        await work.remove(_SHORTEST)
    return written
