"""The maintenance of a table's files: by LanceDB for a small table, else by a process of its own.

LanceDB merges all files of a table with fewer than a million rows each time, and reads them into
memory: for 20,000 documents of 28 kB each maintenance wrote 740 MiB and took 1.3 GB
(docs/explanation/experiments/scale.md, "Maintenance of large indexes").
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from lancedb.index import IvfRq
from lancedb.table import AsyncTable

from service import child
from service.index.rows.schema import prepare
from service.index.storage import database
from service.index.storage.database import conflicting

# a larger table is maintained in a process of its own
SMALL_BYTES = 64 << 20
# By so much a table may grow until it is maintained: LanceDB reads up to 4,096 new texts at once to
# index their words, and needs three times their bytes.
GROWTH_BYTES = 64 << 20
_ENDED = "the process that merges files ended early: it may have had too little memory"


# While writers wait, so many groups of files are merged. Each takes some seconds.
_HELD_GROUPS = 8

# a block between two commits of the writer in this process, which waits meanwhile
Between = Callable[[], AbstractAsyncContextManager[object]]


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did.

    Attributes:
        whole: False if writers changed the same rows each time, so small files are left.
        removed: whether files that it met held deleted rows; perhaps so if they are few and small.
        doubled: names of the vector indexes that doubled since they were built.
    """

    whole: bool
    removed: bool
    doubled: Collection[str] = ()


class Work(Protocol):
    """The maintenance of one table."""

    async def merge(self, *, every: bool) -> Merged:
        """Merge small files and update the indexes.

        Args:
            every: merge all files that indexes cover, not only some of them.

        Raises:
            OSError, RuntimeError: the store fails, or others changed the same indexes.
        """

    async def erase(self) -> int:
        """Write each file with deleted rows again, without them; returns their number."""

    async def remove(self, older_than: timedelta) -> None:
        """Remove the versions that were committed so long ago; no pin may hold."""

    async def prepare(self, *, again: bool) -> None:
        """Build the indexes over words and metadata that are missing, or all of them again."""

    async def index(self, column: str, bits: int) -> None:
        """Build an IVF index with RaBitQ codes over a column of vectors.

        Args:
            column: of vectors.
            bits: of the code of each dimension.
        """


async def size(table: AsyncTable) -> int:
    """Bytes of the files of a table's rows."""
    # the library annotates this call wrongly
    held: Any = await table.stats()
    found: int = held["total_bytes"]
    return found


async def may_hold_deleted(table: AsyncTable) -> bool:
    """Whether some rows in a table's files are deleted; surely so, or not, for a single file."""
    # the library annotates this call wrongly
    held: Any = await table.stats()
    files = held["fragment_stats"]["num_fragments"]
    # the mean is rounded down
    most = files * (held["fragment_stats"]["lengths"]["mean"] + 1) - 1
    return bool(held["num_rows"] < most)


@asynccontextmanager
async def working(table: AsyncTable, between: Between = nullcontext) -> AsyncIterator[Work]:
    """What maintains a table; a process of its own ends with the block.

    Args:
        between: used for what writers prevent otherwise.
    """
    async with AsyncExitStack() as stack:
        if await size(table) <= SMALL_BYTES:
            yield _Here(table, between, stack)
        else:
            yield await stack.enter_async_context(_apart(table, between))


async def started() -> asyncio.subprocess.Process:
    """Start the process that maintains a large table."""
    return await child.started("service.index.merger")


@asynccontextmanager
async def _apart(table: AsyncTable, between: Between) -> AsyncIterator[_There]:
    async with child.ending(await started()) as process:
        yield _There(table, between, process)


class _Here:
    def __init__(self, table: AsyncTable, between: Between, stack: AsyncExitStack) -> None:
        self._table = table
        self._between = between
        self._stack = stack
        self._other: _There | None = None

    async def merge(self, *, every: bool) -> Merged:
        removed = await may_hold_deleted(self._table)
        if await self._optimize(database.NEVER):
            return Merged(whole=True, removed=removed)
        return await (await self._apart()).merge(every=every)

    async def erase(self) -> int:
        return await (await self._apart()).erase()

    async def remove(self, older_than: timedelta) -> None:
        if not await self._optimize(older_than):
            await (await self._apart()).remove(older_than)

    async def _optimize(self, older_than: timedelta) -> bool:
        """Whether LanceDB merged files, removed versions and updated indexes, in this order."""
        for turn in (nullcontext, self._between):
            try:
                async with turn():
                    await self._table.optimize(cleanup_older_than=older_than)
            except RuntimeError as error:
                if not conflicting(error):
                    raise
            else:
                return True
        return False

    async def _apart(self) -> _There:
        """What does each of these steps even if the one before it fails."""
        if self._other is None:
            other = _apart(self._table, self._between)
            self._other = await self._stack.enter_async_context(other)
        return self._other

    async def prepare(self, *, again: bool) -> None:
        await prepare(self._table, again=again)

    async def index(self, column: str, bits: int) -> None:
        config = IvfRq(distance_type="cosine", num_bits=bits)
        await self._table.create_index(column, config=config)


class _There:
    def __init__(self, table: AsyncTable, between: Between, process: child.Child) -> None:
        self._table = table
        self._between = between
        self._process = process

    async def merge(self, *, every: bool) -> Merged:
        removed: bool = (await self._ask("look"))["removed"]
        whole = await self._groups(None, every=every) is not None
        for _ in range(0 if whole else _HELD_GROUPS):
            async with self._between():
                merged = await self._groups(1, every=every)
            if not merged:
                whole = merged == 0
                break
        doubled: list[str] = (await self._ask("update"))["doubled"]
        return Merged(whole, removed, doubled)

    async def _groups(self, most: int | None, *, every: bool) -> int | None:
        """The number of merged fragments; None if writers changed them each time."""
        merged: int | None = (await self._ask("merge", most=most, every=every))["merged"]
        return merged

    async def erase(self) -> int:
        written: int = (await self._ask("erase"))["written"]
        return written

    async def remove(self, older_than: timedelta) -> None:
        await self._ask("remove", older_than=older_than.total_seconds())

    async def prepare(self, *, again: bool) -> None:
        await self._ask("prepare", again=again)

    async def index(self, column: str, bits: int) -> None:
        await self._ask("index", column=column, bits=bits)

    async def _ask(self, work: str, **given: object) -> dict[str, Any]:
        options = await self._table.latest_storage_options()
        wish = {"do": work, "uri": await self._table.uri(), "options": options, **given}
        await self._process.send(wish)
        said = await self._process.receive()
        if said is None:
            raise RuntimeError(_ENDED)
        if "error" in said:
            raise RuntimeError(said["error"])
        return said
