"""Keeps the generation of the served bundle up to date with the others, in the background."""

from __future__ import annotations

import asyncio
import contextvars
import json
import shutil
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import structlog
from lancedb.expr import col, lit
from lancedb.query import ColumnOrdering

from service.embedding.embedder import Document, UnusableInputError
from service.errors import BuildingError, ConflictError, NotFoundError, OvertakenError
from service.index.documents import Index
from service.index.indexes import Generation, Indexes, by_index, is_of, progress, stem
from service.index.merging import size
from service.index.rows import derived
from service.index.rows.checksums import Part
from service.index.rows.records import Encoding, Record, encoded
from service.index.rows.versions import ATTEMPTS, microseconds

log = structlog.get_logger("docsplit.index")

Embed = Callable[[Sequence[str]], Awaitable[Sequence[Document | UnusableInputError]]]
Wrote = Callable[[int], None]

# ids compared at a time
PAGE = 4096
# texts read at a time
CHUNK = 16
# bytes of a generation, with its indexes over words, for one of the rows of another one
ROOM = 1.5
# a commit ends with the chunk that reaches either limit
COMMIT_DOCUMENTS = 256
COMMIT_CHARACTERS = 400_000


async def catch_up(
    own: Index, other: Index, embed: Embed, wrote: Wrote, since: int | None = None
) -> int:
    """Copy the documents that ``own`` lacks or has in an older state from ``other``.

    A document keeps the time at which a client wrote it, and never replaces a later state. So the
    next pass completes one that was interrupted, and two processes may copy at once.

    Args:
        own: gets the documents.
        other: a generation of the same index.
        embed: the model of ``own``.
        wrote: called with the number of documents of each commit.
        since: read only the changes that clients made after this time, in microseconds.

    Returns:
        The number of documents that were older or missing.
    """
    changed = 0
    async for page in _pages(other, since):
        rows = page.to_pylist()
        held = await own.updated([row["id"] for row in rows])
        tombstones = {
            row["id"]: row["updated"]
            for row in rows
            if row["deleted"] and held.get(row["id"], row["updated"]) < row["updated"]
        }
        wanted = [
            row["id"]
            for row in rows
            if not row["deleted"] and held.get(row["id"], -1) < row["updated"]
        ]
        if tombstones:
            await own.tombstone(tombstones)
            wrote(len(tombstones))
        changed += len(tombstones) + len(wanted)
        await _copy(own, other, wanted, embed, wrote)
    return changed


async def _pages(index: Index, since: int | None) -> AsyncIterator[pa.Table]:
    after = ""
    while True:
        where = col("id") > lit(after)
        if since is not None:
            where = where & (col("updated") > lit(since))
        query = index.table.query().where(where).order_by([ColumnOrdering(column_name="id")])
        page = await query.select(["id", "updated", "deleted"]).limit(PAGE).to_arrow()
        if not page.num_rows:
            return
        yield page
        after = page["id"][-1].as_py()


async def _copy(own: Index, other: Index, ids: Sequence[str], embed: Embed, wrote: Wrote) -> None:
    rows: list[dict[str, Any]] = []
    for start in range(0, len(ids), CHUNK):
        rows += await _contents(other, ids[start : start + CHUNK])
        full = (
            len(rows) >= COMMIT_DOCUMENTS
            or sum(len(row["text"]) for row in rows) >= COMMIT_CHARACTERS
        )
        if rows and (full or start + CHUNK >= len(ids)):
            await own.merge(await embed_rows(rows, embed), [row["updated"] for row in rows])
            wrote(len(rows))
            rows = []


async def _contents(index: Index, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The current documents, which may be later than their ids."""
    parts = (Part.HEAD, Part.TEXT, Part.LINKS, Part.STATE)
    columns = derived.outline_columns(index.schema.names)
    rows: list[dict[str, Any]] = []
    # a damaged document is not copied; ``docsplit-index check`` names it
    async for found in index.contents(ids, *parts, columns=columns):
        rows += found.drop_columns(["deleted"]).to_pylist()
    return rows


async def embed_rows(rows: Sequence[dict[str, Any]], embed: Embed) -> list[Record]:
    """Documents of stored rows with new vectors."""
    outcomes = await embed([row["text"] for row in rows])
    return [
        Record(
            id=row["id"],
            text=row["text"],
            title=row["title"],
            metadata=json.loads(row["metadata"]),
            links=row["links"],
            encoding=await _encoding(row, outcome, embed),
            outline=derived.opened_outline(row.get(derived.OUTLINE), row["digest"]),
        )
        for row, outcome in zip(rows, outcomes, strict=True)
    ]


async def _encoding(
    row: dict[str, Any], outcome: Document | UnusableInputError, embed: Embed
) -> Encoding:
    if not isinstance(outcome, UnusableInputError):
        return encoded(outcome)
    # it had tokens in another bundle's vocabulary, and this generation must not lose it
    log.warning("document_without_tokens")
    [named] = await embed([f"document {row['id']}"])
    if isinstance(named, UnusableInputError):
        raise named
    vector = encoded(named).vector
    return Encoding(vector, vector[None], [len(row["text"])])


POLL_SECONDS = 3.0
# renewed during the work; after a kill another process waits this long before it goes on
LEASE_SECONDS = 15.0
# microseconds: covers the clock differences of replicas and the time of a commit
MARGIN = 10 * 60 * 1_000_000


@dataclass(frozen=True, slots=True)
class Seen:
    """The state that the last pass over an index saw.

    Attributes:
        versions: table versions of the other generations, by generation.
        started: when the pass began, in microseconds since the epoch.
    """

    versions: dict[str, int]
    started: int


# a pace is that of so many seconds
PACE_SECONDS = 120.0
# between two lines of the log on one index
LOG_SECONDS = 60.0


class Pace:
    """How fast the documents that an index still lacks become fewer, whichever process does it.

    Attributes:
        logged: when it was last logged.
    """

    def __init__(self) -> None:
        self.logged = time.monotonic()
        # when, and how many were left
        self._noted: deque[tuple[float, int]] = deque()

    def note(self, left: int) -> None:
        """Note the documents that are left now."""
        now = time.monotonic()
        self._noted.append((now, left))
        # the first one stays as long as no second one is old enough to begin the span
        while len(self._noted) > 2 and self._noted[1][0] <= now - PACE_SECONDS:
            self._noted.popleft()

    @property
    def rate(self) -> float:
        """Documents a second; 0 before any could be counted."""
        (began, most), (ended, least) = self._noted[0], self._noted[-1]
        return max(most - least, 0) / (ended - began) if ended > began else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until none is left; None if that cannot be known."""
        return self._noted[-1][1] / self.rate if self.rate else None

    @property
    def summary(self) -> dict[str, float | None]:
        """Both, for the log."""
        left = self.seconds_left
        return {"rate": round(self.rate, 2), "seconds_left": None if left is None else round(left)}


async def require_room(
    indexes: Indexes, name: str, own: Generation, others: Sequence[Generation]
) -> None:
    """Raise ConflictError if a folder has no room for what a generation still lacks."""
    if "://" in indexes.database.uri:
        return
    whole = max([await size(other.index.table) for other in others if other.complete])
    needed = int(ROOM * whole) - await size(own.index.table)
    free = shutil.disk_usage(indexes.database.uri).free
    if needed > free:
        raise ConflictError(
            f"the index {name!r} needs about {needed:,} bytes more for the vectors of the served "
            f"bundle, and the disk of index_path has {free:,}: enlarge it, or delete indexes; then "
            "the service goes on by itself"
        )


class Follower:
    """Checks all indexes every few seconds, and re-embeds the documents of other generations.

    It fills the generation of the served bundle. When that is complete, it keeps the generation of
    the former bundle current, too, so that this one can answer again at once.

    A lease lets only one process of each bundle work on an index at a time. It saves work and is
    not needed for correctness: two processes that work at once produce the same result.

    Args:
        indexes: to keep up to date.
        embed_for: gives what embeds documents for a served revision.
        wrote: called after each commit with the index and the number of its documents.
        left: called with the number of documents still to re-embed, in all indexes.

    Attributes:
        refused: names of the indexes that no served bundle can read.
    """

    def __init__(
        self,
        indexes: Indexes,
        embed_for: Callable[[str], Embed],
        wrote: Callable[[str, int], None],
        left: Callable[[int], None],
    ) -> None:
        self._indexes = indexes
        self._embed_for = embed_for
        self._wrote = wrote
        self._report = left
        self.refused: set[str] = set()
        self._left: dict[str, int] = {}
        # what is known of the speed, by index
        self.paces: dict[str, Pace] = {}
        # by index and revision
        self._seen: dict[tuple[str, str], Seen] = {}
        # tables of indexes that need nothing while they have no others
        self._settled: dict[str, list[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Keep the indexes up to date until ``close``."""
        # without the context of the request that may have started it
        self._loop = asyncio.create_task(self._run(), context=contextvars.Context())

    async def close(self) -> None:
        """Stop. The process that continues repeats uncommitted work."""
        tasks = [task for task in (self._loop, *self._tasks.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def build(self, name: str) -> Index:
        """Re-embed an index, or wait until another process has done so.

        Raises:
            NotFoundError: there is no index of that name.
        """
        while True:
            await self._once(name)
            try:
                return await self._indexes.open(name)
            except BuildingError as error:
                self._count(name, error.total - error.done)
                await asyncio.sleep(1)

    async def carry(self, name: str, generation: str, ids: Sequence[str]) -> None:
        """Copy documents to the served generation before a write of them is acknowledged.

        Only if it answers already, or is about to, and another generation took the write. Otherwise
        a later pass copies them.

        Args:
            name: of the index.
            generation: that took the write.
            ids: of the documents.
        """
        own = await self._indexes.own(name)
        if generation == own.identity.generation:
            return
        if await self._indexes.registry.closing(own.identity):
            source = await self._indexes.written(name, generation)
            embed = self._embed_for(own.identity.revision)
            await _copy(own, source, ids, embed, lambda n: self._wrote(name, n))

    async def settle(self, name: str) -> None:
        """Copy all documents that only other generations of an index have.

        Raises:
            NotFoundError: there is no index of that name.
        """
        own, others = await self._split(name)
        embed = self._embed_for(own.index.identity.revision)
        for _ in range(ATTEMPTS):
            versions = await _versions(others)
            for other in others:
                await catch_up(own.index, other.index, embed, lambda n: self._wrote(name, n))
            if await _versions(others) == versions:
                return
        raise OvertakenError

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except Exception as error:  # noqa: BLE001 the next round tries again
                log.warning("index_listing_failed", reason=str(error)[:300])
            await asyncio.sleep(POLL_SECONDS)

    async def _round(self) -> None:
        held = by_index(await self._indexes.sweep())
        for name, tables in held.items():
            up_to_date = self._settled.get(name) == tables or self._current(name, tables)
            if not up_to_date and (name not in self._tasks or self._tasks[name].done()):
                self._tasks[name] = asyncio.create_task(self._follow(name, tables))
        for name in self._tasks.keys() - held.keys():
            self._tasks.pop(name).cancel()
            self._forget(name)

    def _current(self, name: str, tables: list[str]) -> bool:
        """Whether the only table is that of the only served bundle, without opening it."""
        models = self._indexes.served.models
        return len(models) == len(tables) == 1 and is_of(tables[0], name, models[0].revision)

    async def _follow(self, name: str, tables: list[str]) -> None:
        try:
            await self._once(name)
            self.refused.discard(name)
            if len(tables) == 1:
                # a generation created in this pass changes the tables
                self._settled[name] = tables
        except NotFoundError:
            self._forget(name)
        except ConflictError as error:
            # usually another bundle's index
            if name not in self.refused:
                log.warning("index_not_served", index=name, reason=str(error))
            self._forget(name)
            self.refused.add(name)
            if len(tables) == 1:
                self._settled[name] = tables
        except Exception as error:  # noqa: BLE001 the next round tries again
            if not await self._indexes.registry.overtook(error):
                log.warning("index_reembedding_failed", index=name, reason=str(error)[:300])

    async def _once(self, name: str) -> None:
        """Do the work that an index needs now, unless another process does it."""
        own, others = await self._split(name)
        if own.complete:
            self._count(name, 0)
        else:
            done, total = await progress(others, own)
            self._count(name, total - done)
        await self._keep(name, own, others)
        kept = self._indexes.served.kept(others)
        if own.complete and kept is not None:
            await self._keep(name, kept, [own])

    async def _keep(self, name: str, own: Generation, others: list[Generation]) -> None:
        """Bring one generation up to date, unless another process does it."""
        seen = self._seen.get((name, own.index.identity.revision))
        if own.complete and seen is not None and seen.versions == await _versions(others):
            return
        if not own.complete:
            await require_room(self._indexes, name, own, others)
        leases = self._indexes.leases
        lease = f"{stem(name, own.index.identity.revision)}.reembed"
        if await leases.acquire(lease, LEASE_SECONDS):
            async with leases.kept(lease, LEASE_SECONDS):
                await self._pass(name, own, others)

    async def _pass(self, name: str, own: Generation, others: list[Generation]) -> None:
        def wrote(documents: int) -> None:
            self._wrote(name, documents)
            if own.complete:
                return
            self._count(name, max(self._left.get(name, 0) - documents, 0))
            pace = self.paces.get(name)
            if pace is not None and time.monotonic() > pace.logged + LOG_SECONDS:
                pace.logged = time.monotonic()
                log.info("index_filling", index=name, left=self._left[name], **pace.summary)

        began = time.monotonic()
        embed = self._embed_for(own.index.identity.revision)
        versions = await _versions(others)
        key = name, own.index.identity.revision
        since = self._since(key, versions) if own.complete else None
        closing = own.complete or await self._indexes.registry.closing(own.index.identity)
        while True:
            versions, started, turn = await _versions(others), microseconds(), time.monotonic()
            changed = 0
            for other in others:
                changed += await catch_up(own.index, other.index, embed, wrote, since)
            if closing:
                break
            # while clients write to the others, each pass finds something; after a short pass
            # only the last seconds are missing
            if not changed or time.monotonic() - turn < POLL_SECONDS:
                await self._indexes.registry.close(own.index.identity)
                closing = True
            since = started - MARGIN
        if (
            not own.complete
            and versions.keys() != (await _versions((await self._split(name))[1])).keys()
        ):
            # the next round reads the generations that exist then
            return
        self._seen[key] = Seen(versions, started)
        if not own.complete:
            await self._indexes.registry.mark(own.index.identity)
            self._count(name, 0)
            seconds = round(time.monotonic() - began, 1)
            log.info("index_reembedded", index=name, table=own.index.table.name, seconds=seconds)

    def _since(self, key: tuple[str, str], versions: dict[str, int]) -> int | None:
        """The time from which a pass must read; None if it must read everything.

        Copies keep their time. A copy can come from a generation that this process has not read
        to its end, and a search by time would miss it.
        """
        seen = self._seen.get(key)
        if seen is None or seen.versions.keys() != versions.keys():
            return None
        return seen.started - MARGIN

    async def _split(self, name: str) -> tuple[Generation, list[Generation]]:
        """The served generation, created if it is missing, and the others."""
        for _ in range(ATTEMPTS):
            await self._indexes.own(name)
            generations = await self._indexes.generations(name)
            own = self._indexes.served.own(generations)
            # otherwise it was deleted between the two calls
            if own is not None:
                return own, [generation for generation in generations if generation is not own]
        raise OvertakenError

    def _count(self, name: str, left: int) -> None:
        self._left[name] = left
        self._report(sum(self._left.values()))
        if left:
            self.paces.setdefault(name, Pace()).note(left)
        else:
            self.paces.pop(name, None)

    def _forget(self, name: str) -> None:
        self.refused.discard(name)
        self.paces.pop(name, None)
        for key in [key for key in self._seen if key[0] == name]:
            del self._seen[key]
        self._settled.pop(name, None)
        self._left.pop(name, None)
        self._report(sum(self._left.values()))


async def _versions(generations: list[Generation]) -> dict[str, int]:
    indexes = [generation.index for generation in generations]
    return {index.identity.generation: await index.table.version() for index in indexes}
