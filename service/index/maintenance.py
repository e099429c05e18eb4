"""Compaction, index building and fits, by one process at a time; reads and writes continue.

Tables of earlier versions also get the columns that they lack.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from functools import partial
from itertools import count

import pyarrow as pa
import structlog
from lancedb.index import IndexConfig
from lancedb.table import AsyncTable

from docsplit.ranking.words import lined
from service import executors
from service.errors import BuildingError, ConflictError, NotFoundError
from service.index import sql
from service.index.documents import Index
from service.index.indexes import Indexes, by_index
from service.index.merging import GROWTH_BYTES, Between, Merged, may_hold_deleted, size, working
from service.index.rows import derived
from service.index.rows.checksums import Part, texts
from service.index.rows.schema import LACKING, OPTIONAL, indexed, prepare
from service.index.rows.vectors import windows_searchable
from service.index.sql import Sql
from service.index.storage.database import (
    KEEP_VERSIONS,
    Database,
    older_than,
    pinned,
    table_names,
)
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
# between two looks for what is to be erased
_LONGEST_PAUSE = 3600.0
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


async def _none() -> Sequence[Database]:
    return []


class Maintainer:
    """Optimizes indexes that this process wrote to.

    Args:
        indexes: to optimize; only generations of the served bundle and its former one.
        done: called with the name of each optimized index.
        between: gives for the name of an index a block between two commits to it, or one that
            waits for nothing.
        erase_within: seconds after which no file holds a text that was deleted or replaced.
        others: gives further databases, whose small tables are kept free of deleted rows.
    """

    def __init__(
        self,
        indexes: Indexes,
        done: Callable[[str], Awaitable[None]] | None = None,
        between: Callable[[str], AbstractAsyncContextManager[object]] = lambda _: nullcontext(),
        erase_within: float = math.inf,
        others: Callable[[], Awaitable[Sequence[Database]]] = _none,
    ) -> None:
        self._indexes = indexes
        self._erase_within = erase_within
        self._others = others
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
        self._started: list[asyncio.Task[None]] = []

    def note(self, name: str) -> None:
        """Note a write to an index."""
        self._commits[name] = self._commits.get(name, 0) + 1
        self._wake.setdefault(name, asyncio.Event()).set()
        if name not in self._tasks or self._tasks[name].done():
            self._tasks[name] = asyncio.create_task(self._run(name))

    def start(self) -> None:
        """Begin what needs no write: upgrades of tables, and their maintenance in time."""
        for work in (self.upgrade(), self._watch()):
            # without the context of the request that may have started it
            task = asyncio.create_task(work, context=contextvars.Context())
            self._started.append(task)

    async def upgrade(self) -> None:
        """Give all documents that lack terms their terms."""
        try:
            for name in await self._indexes.names():
                await self._fill(name)
        except Exception as error:  # noqa: BLE001 searches read the texts instead
            log.warning("index_upgrade_failed", reason=str(error)[:300])

    async def _watch(self) -> None:
        """Maintain what processes left that have ended, and erase in time, whoever deleted."""
        pause = min(self._erase_within / 24, _LONGEST_PAUSE)
        for look in count():
            try:
                due = await self._indexes.erasures.due(self._erase_within)
                for name, tables in by_index(await self._indexes.tables()).items():
                    if due.keys() & tables or (look == 0 and await self._is_left(name)):
                        self.note(name)
                # its holder scrubs for all, and keeps it as long as it looks in time
                if look > 0 and await self._indexes.leases.acquire("scrub", 2 * pause):
                    for database in await self._others():
                        await scrub(database)
            except Exception as error:  # noqa: BLE001 the next look tries again
                log.warning("index_erasures_failed", reason=str(error)[:300])
            await asyncio.sleep(pause)

    async def _is_left(self, name: str) -> bool:
        """Whether an index has former versions, which the maintenance after a write removes."""
        try:
            table = (await self._indexes.open(name)).table
            return len(await table.list_versions()) > 1  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 requests tell what is wrong with this index
            return False

    async def close(self) -> None:
        """Stop; a running optimization is abandoned and changes nothing."""
        for later in self._later.values():
            later.cancel()
        tasks = [*self._tasks.values(), *self._started]
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
        before = self._sizes.setdefault(name, await self._size(name))
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
                if await self._size(name) > before + GROWTH_BYTES:
                    return

    async def _size(self, name: str) -> int:
        return sum([await size(index.table) for index in await self._indexes.filled(name)])

    async def _once(self, name: str) -> bool:
        """Whether this process could maintain the index; otherwise another one does so."""
        started = time.monotonic()
        for index in await self._indexes.filled(name):
            lease = index.table.name
            if not await self._indexes.leases.acquire(lease, LEASE_SECONDS):
                return False
            async with self._indexes.leases.kept(lease, LEASE_SECONDS):
                between = partial(self._between, name)
                if not await maintain(self._indexes, name, index, between=between):
                    log.warning("index_files_left", index=name)
                await self._erase(name, index)
                await self._plan(name, index.table)
        self._sizes[name] = await self._size(name)
        seconds = round(time.monotonic() - started, 2)
        log.info("index_optimized", index=name, seconds=seconds)
        if self._done is not None:
            await self._done(name)
        return True

    async def _erase(self, name: str, index: Index) -> None:
        """Take deleted texts out of all generations of an index if that is due.

        Readers need the former versions for a while. A later maintenance removes them, and then the
        table leaves the record.
        """
        erasures, lease = self._indexes.erasures, index.table.name
        written = (await erasures.due(self._erase_within)).get(lease)
        if written is None:
            return
        for generation in await self._indexes.generations(name):
            table = generation.index.table
            if written:
                if await pinned(table):
                    return
                async with working(table) as work:
                    await work.remove(await older_than(table, KEEP_VERSIONS))
            elif table.name == lease:
                await rewrite(self._indexes, name, index)
            elif await self._indexes.leases.acquire(table.name, LEASE_SECONDS):
                async with self._indexes.leases.kept(table.name, LEASE_SECONDS):
                    await rewrite(self._indexes, name, generation.index)
            else:
                return
        if written:
            await erasures.forget([lease])
        else:
            await erasures.wrote(lease)
            log.info("index_erased", index=name)

    async def _plan(self, name: str, table: AsyncTable) -> None:
        """Maintain an index once more when its tombstones and former versions may go."""
        version = await table.version()
        if version != self._left.get(table.name):
            self._left[table.name] = version
            if (later := self._later.get(table.name)) is not None:
                later.cancel()
            loop = asyncio.get_running_loop()
            self._later[table.name] = loop.call_later(AGAIN_SECONDS, self.note, name)


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
        Whether small files are merged; False if writers changed the same rows each time.
    """
    if len(await indexes.generations(name)) == 1:
        await purge(index.table, time.time_ns() // 1000 - KEEP_TOMBSTONES)
    merged = await optimize(
        index.table,
        indexes.database.sync,
        step,
        every=every,
        rebuild=rebuild,
        between=between,
    )
    if merged.removed:
        await indexes.erasures.note(index.table.name)
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
    return merged.whole


async def optimize(
    table: AsyncTable,
    sync: Callable[[], Awaitable[None]] | None = None,
    step: Callable[[str], None] = lambda _: None,
    *,
    every: bool = False,
    rebuild: bool = False,
    between: Between = nullcontext,
) -> Merged:
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
        What the merge of small files did.

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
    return merged


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


async def scrub(database: Database) -> None:
    """Take deleted rows out of the files of small tables, and remove former versions.

    These tables have no index over words. Their writers may have ended, and LanceDB by itself
    leaves a deleted row in its file until a tenth of the rows are deleted.
    """
    for name in await table_names(database):
        table = await database.open_table(name)
        async with working(table) as work:
            await work.remove(await older_than(table, KEEP_VERSIONS))
            if await may_hold_deleted(table):
                await work.erase()
    await database.sync()


async def purge(table: AsyncTable, before: int) -> None:
    """Remove the tombstones from before a time, in microseconds since the epoch."""
    where = sql.every(sql.compare("deleted", "=", True), sql.compare("updated", "<", before))
    if await table.count_rows(where):
        await table.delete(where)


async def rewrite(
    indexes: Indexes, name: str, index: Index, step: Callable[[str], None] = lambda _: None
) -> int:
    """Take deleted texts out of the present version; as ``erase``, but former versions stay."""
    if len(await indexes.generations(name)) == 1:
        await purge(index.table, time.time_ns() // 1000 - KEEP_TOMBSTONES)
    async with working(index.table) as work:
        step("write files with deleted texts again")
        written = await work.erase()
    # words of deleted texts stay in the indexes until these are built again
    await optimize(index.table, indexes.database.sync, step, every=True, rebuild=True)
    return written


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
    written = await rewrite(indexes, name, index, step)
    await indexes.database.sync()
    async with working(table) as work:
        step("remove former versions")
        await asyncio.sleep(2 * _SHORTEST.total_seconds())
        await work.remove(_SHORTEST)
    await indexes.erasures.forget([table.name])
    return written
