"""Leases among processes, and how long others have shown no sign, by the reader's own clock."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog
from cachetools import LRUCache

from service.index import sql
from service.index.sql import Sql
from service.logs import outline

if TYPE_CHECKING:
    from service.index.rows.keyed import Row
    from service.index.storage.database import Database

log = structlog.get_logger("docsplit.index")

# several signs of a process that works, even if its clock is wrong
SILENT_SECONDS = 10.0
# names of which a process remembers the last sign
_KEPT = 4096


class Silence:
    """Signs that a process saw more than once, such as heartbeats.

    A sign has a time of the clock of its replica. If that clock is wrong, the sign of a replica
    that works looks as old as that of one that has ended, but it changes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # the sign, and when it was first seen
        self._seen: LRUCache[str, tuple[Hashable, float]] = LRUCache(_KEPT)

    def ended(
        self,
        name: str,
        sign: Hashable,
        expires: float,
        seconds: float,
        silent: float = SILENT_SECONDS,
    ) -> bool:
        """Whether a replica that gave a sign seems to have ended.

        Args:
            sign: the newest.
            expires: when the sign counts no longer, in seconds since the epoch.
            seconds: for how long the sign counts.
            silent: seconds for which it must not have changed, even if it seems expired: the clock
                of the other replica, or of this one, may be wrong.
        """
        still = self._still(name, sign)
        # an expired sign counts the time before this process first saw it
        return still >= seconds or (still >= min(seconds, silent) and expires < time.time())

    def _still(self, name: str, sign: Hashable) -> float:
        """For how many seconds a sign has not changed; 0 if this is the first look at it."""
        now = self._clock()
        seen = self._seen.get(name)
        if seen is None or seen[0] != sign:
            self._seen[name] = sign, now
            return 0.0
        return now - seen[1]


# a process that works renews its lease this often, or three times before the lease expires
_RENEWAL_SECONDS = 3.0
_RELEASED = 0.0
# after this many writes the table is tidied: most of them replace a row
_WRITES = 100


class Leases:
    """Named leases in a LanceDB table: the first conditional write gets the lease.

    The clocks of two processes may differ. So a process takes a lease from another only if the
    lease has not been renewed for some time by the process's own clock.
    """

    def __init__(self, database: Database) -> None:
        # LanceDB takes seconds to import, and the service needs ``Silence`` at its start
        from service.index.rows.keyed import KeyedTable

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
