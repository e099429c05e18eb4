"""Rows with a key that several processes read and change: leases, trainings, heads, generations.

Every write is one commit of LanceDB. LanceDB serializes commits and repeats a write that lost a
conflict. So if several processes change a row under the same condition, the first finds it true and
the others do not. LanceDB gives up after ten lost conflicts; then the write begins again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa
import structlog
from lancedb.expr import Expr, col, lit
from lancedb.table import AsyncTable

from service.index.rows.schema import PRIMARY_KEY
from service.index.sql import Sql
from service.index.storage import pins
from service.index.storage.database import Database, refresh
from service.index.storage.pins import KEEP_VERSIONS

log = structlog.get_logger("docsplit.index")

Row = dict[str, Any]
Written = TypeVar("Written")

# in the error of a write that lost ten conflicts
_OVERTAKEN = "Too many concurrent writers"
_ATTEMPTS = 8
_PAUSE_SECONDS = 0.02
# a write adds a file, and a read of all rows opens every file, 0.2 ms of a core each
_WRITES = 16


class KeyedTable:
    """A table whose first column is a key; the first write creates it.

    Args:
        database: holds the table.
        name: of the table.
        columns: types by name, the key first; no value is null.
    """

    def __init__(self, database: Database, name: str, /, **columns: pa.DataType) -> None:
        self.key = next(iter(columns))
        self.schema = pa.schema(
            pa.field(column, kind, False, PRIMARY_KEY if column == self.key else None)
            for column, kind in columns.items()
        )
        self._database = database
        self.name = name
        self._writes = 0

    async def rows(
        self, where: Expr | Sql | None = None, columns: list[str] | None = None
    ) -> list[Row]:
        """All rows, or those that meet a condition; none if the table does not exist."""
        table = await self._database.find(self.name, still=True)
        if table is None:
            return []
        query = table.query().select(columns or self.schema.names)
        found: list[Row] = (
            await (query if where is None else query.where(where)).to_arrow()
        ).to_pylist()
        return found

    async def get(self, key: str, columns: list[str] | None = None) -> Row | None:
        """The row with a key."""
        found = await self.rows(self.of(key), columns)
        return found[0] if found else None

    async def keys(self) -> list[str]:
        """Keys of all rows."""
        return [row[self.key] for row in await self.rows(columns=[self.key])]

    async def put(self, *rows: Mapping[str, Any], replace: bool | Sql = True) -> None:
        """Write rows.

        Args:
            rows: with all columns.
            replace: whether to replace an existing row of the same key: always, never, or under a
                condition on its columns, which ``target`` names.
        """
        table = await self._table()
        merge = table.merge_insert(self.key)
        if replace is not False:
            merge = merge.when_matched_update_all(where=None if replace is True else replace)
        given = pa.Table.from_pylist([dict(row) for row in rows], schema=self.schema)
        merge = merge.when_not_matched_insert_all()
        await _persistent(table, lambda: merge.execute(given))

    async def change(self, where: Sql, **values: Any) -> bool:
        """Set columns of the rows that meet a condition; returns whether there is one."""
        table = await self._table()
        result = await _persistent(table, lambda: table.update(values, where=where))
        return bool(result.rows_updated)

    async def delete(self, where: Expr) -> None:
        """Delete the rows that meet a condition."""
        table = await self._database.find(self.name, still=True)
        if table is not None:
            await _persistent(table, lambda: table.delete(where))

    async def sync(self) -> None:
        """Return when all earlier writes are as durable as the settings ask."""
        await self._database.sync()

    async def tidy(self) -> None:
        """Merge files, and remove versions that no reader needs: every write leaves one of each."""
        try:
            table = await self._table()
            await table.optimize(cleanup_older_than=await pins.older_than(table, KEEP_VERSIONS))
        except Exception as error:  # noqa: BLE001 another commit came first; the next call does it
            log.info("table_not_tidied", table=self.name, reason=str(error)[:300])

    async def tidy_sometimes(self, writes: int = _WRITES) -> None:
        """Tidy at every so many calls: a caller does so after each write."""
        self._writes += 1
        if self._writes % writes == 0:
            await self.tidy()

    def of(self, *keys: str) -> Expr:
        """The condition that a row has one of some keys."""
        if len(keys) == 1:
            return col(self.key).eq(lit(keys[0]))
        return col(self.key).isin([lit(key) for key in keys])

    async def _table(self) -> AsyncTable:
        return await self._database.provide(self.name, self.schema, still=True)


def conflicting(error: Exception) -> bool:
    """Whether LanceDB gave up a change because others came first; it has no error type for this."""
    return "onflict" in str(error) or _OVERTAKEN in str(error)


async def _persistent(table: AsyncTable, write: Callable[[], Awaitable[Written]]) -> Written:
    """Repeat a write that LanceDB gave up, after a pause at random that grows; it wrote nothing."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return await write()
        except RuntimeError as error:
            if _OVERTAKEN not in str(error):
                raise
        await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS * 2**attempt))  # noqa: S311 no secret
        await refresh(table)
    return await write()
