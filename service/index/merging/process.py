"""The maintenance of a table's files: by LanceDB for a small table, else by a process of its own.

LanceDB merges all files of a table with fewer than a million rows each time, and reads them into
memory: for 20,000 documents of 28 kB each maintenance wrote 740 MiB and took 1.3 GB
(docs/explanation/experiments.md, "Maintenance of large tables").
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, cast

import orjson
from lancedb.index import IvfRq
from lancedb.table import AsyncTable

from service.index.rows.columns import prepare
from service.index.storage import pins

# a larger table is maintained in a process of its own
SMALL_BYTES = 64 << 20
# By so much a table may grow until it is maintained: LanceDB reads up to 4,096 new texts at once to
# index their words, and needs three times their bytes.
GROWTH_BYTES = 64 << 20
_ENDED = "the process that merges files ended early: it may have had too little memory"


class Work(Protocol):
    """The maintenance of one table."""

    async def merge(self) -> Collection[str]:
        """Merge small files and update the indexes.

        Returns:
            Names of the vector indexes that doubled since they were built.

        Raises:
            OSError, RuntimeError: the store fails, or writers changed the same rows.
        """

    async def remove(self, older_than: timedelta) -> None:
        """Remove the versions that were committed so long ago; no pin may hold."""

    async def prepare(self) -> None:
        """Build the indexes over words and metadata again."""

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


@asynccontextmanager
async def working(table: AsyncTable) -> AsyncIterator[Work]:
    """What maintains a table; a process of its own ends with the block."""
    if await size(table) <= SMALL_BYTES:
        yield _Here(table)
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "service.index.merging",
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    try:
        yield _There(table, process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class _Here:
    def __init__(self, table: AsyncTable) -> None:
        self._table = table

    async def merge(self) -> Collection[str]:
        await self._table.optimize(cleanup_older_than=pins.NEVER)
        return ()

    async def remove(self, older_than: timedelta) -> None:
        await self._table.optimize(cleanup_older_than=older_than)

    async def prepare(self) -> None:
        await prepare(self._table, again=True)

    async def index(self, column: str, bits: int) -> None:
        config = IvfRq(distance_type="cosine", num_bits=bits)
        await self._table.create_index(column, config=config)


class _There:
    def __init__(self, table: AsyncTable, process: asyncio.subprocess.Process) -> None:
        self._table = table
        self._process = process

    async def merge(self) -> Collection[str]:
        doubled: list[str] = (await self._ask("merge"))["doubled"]
        return doubled

    async def remove(self, older_than: timedelta) -> None:
        await self._ask("remove", older_than=older_than.total_seconds())

    async def prepare(self) -> None:
        await self._ask("prepare")

    async def index(self, column: str, bits: int) -> None:
        await self._ask("index", column=column, bits=bits)

    async def _ask(self, work: str, **given: object) -> dict[str, Any]:
        options = await self._table.latest_storage_options()
        wish = {"do": work, "uri": await self._table.uri(), "options": options, **given}
        stdin = cast("asyncio.StreamWriter", self._process.stdin)
        stdout = cast("asyncio.StreamReader", self._process.stdout)
        with suppress(ConnectionError):
            stdin.write(orjson.dumps(wish) + b"\n")
            await stdin.drain()
        line = await stdout.readline()
        said: dict[str, Any] = orjson.loads(line) if line else {"error": _ENDED}
        if "error" in said:
            raise RuntimeError(said["error"])
        return said
