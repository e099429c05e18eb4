"""Rows with a key that several processes read and change: leases, trainings, heads, generations.

Every write is one commit of LanceDB. LanceDB serializes commits and repeats a write that lost a
conflict. So if several processes change a row under the same condition, the first finds it true and
the others do not. LanceDB gives up after ten lost conflicts; then the write begins again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import structlog
from lancedb.expr import Expr, col, lit
from lancedb.table import AsyncTable

from service.errors import ConflictError
from service.index.rows.schema import PRIMARY_KEY
from service.index.sql import Sql
from service.index.storage.database import KEEP_VERSIONS, OVERTAKEN, Database, older_than, refresh

if TYPE_CHECKING:
    from service.index.indexes import Indexes

log = structlog.get_logger("docsplit.index")

Row = dict[str, Any]
Written = TypeVar("Written")

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

    async def put(
        self, *rows: Mapping[str, Any], replace: bool | Sql = True, insert: bool = True
    ) -> bool:
        """Write rows; returns whether it wrote one.

        Args:
            rows: with all columns.
            replace: whether to replace an existing row of the same key: always, never, or under a
                condition on its columns, which ``target`` names.
            insert: whether to add a row whose key has none.
        """
        table = await self._table()
        merge = table.merge_insert(self.key)
        if replace is not False:
            merge = merge.when_matched_update_all(where=None if replace is True else replace)
        given = pa.Table.from_pylist([dict(row) for row in rows], schema=self.schema)
        if insert:
            merge = merge.when_not_matched_insert_all()
        result = await _persistent(table, lambda: merge.execute(given))
        return bool(result.num_updated_rows + result.num_inserted_rows)

    async def change(self, where: Sql, **values: Any) -> bool:
        """Set columns of the rows that meet a condition; returns whether there is one."""
        table = await self._table()
        result = await _persistent(table, lambda: table.update(values, where=where))
        return bool(result.rows_updated)

    async def delete(self, where: Expr | Sql) -> None:
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
            await table.optimize(cleanup_older_than=await older_than(table, KEEP_VERSIONS))
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


async def _persistent(table: AsyncTable, write: Callable[[], Awaitable[Written]]) -> Written:
    """Repeat a write that LanceDB gave up, after a pause at random that grows; it wrote nothing."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return await write()
        except RuntimeError as error:
            if OVERTAKEN not in str(error):
                raise
        await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS * 2**attempt))  # noqa: S311 no secret
        await refresh(table)
    return await write()


# aliases of one store; a process reads all of them at once
MOST = 1000
# a process sees a switch by another process after this time
SECONDS = 1.0


class Aliases:
    """The indexes that aliases name.

    Args:
        database: holds the table.
    """

    def __init__(self, database: Database) -> None:
        columns = {"alias": pa.string(), "name": pa.string()}
        self._table = KeyedTable(database, "aliases", **columns)
        self._known: dict[str, str] = {}
        self._until = 0.0

    async def all(self) -> dict[str, str]:
        """Names of indexes by alias, as they are now, in the order of the aliases."""
        rows = await self._table.rows()
        self._known = {row["alias"]: row["name"] for row in sorted(rows, key=lambda r: r["alias"])}
        self._until = time.monotonic() + SECONDS
        return self._known

    async def find(self, alias: str) -> str | None:
        """The index that an alias names, or named a moment ago; None if there is no such alias."""
        known = self._known if time.monotonic() < self._until else await self.all()
        return known.get(alias)

    async def refuse(self, name: str) -> None:
        """Raise ConflictError if an alias has a name."""
        if name in await self.all():
            raise ConflictError(
                "an alias has that name: delete the alias first, or use another name"
            )

    async def put(self, alias: str, name: str) -> None:
        """Let an alias name an index; return when that is durable."""
        await self._table.put({"alias": alias, "name": name})
        await self._written()

    async def remove(self, alias: str) -> None:
        """Remove an alias; return when that is durable."""
        await self._table.delete(self._table.of(alias))
        await self._written()

    async def _written(self) -> None:
        self._until = 0.0
        await self._table.sync()
        await self._table.tidy()


async def resolve(indexes: Indexes, name: str) -> str:
    """The name of an index: the given one, or that of the index of an alias.

    A name that is neither stays the same. The name of an index needs no read of the aliases.
    """
    if any(table.startswith(f"{name}.") for table in await indexes.recent_tables()):
        return name
    return await indexes.aliases.find(name) or name


async def names(indexes: Indexes, name: str) -> set[str]:
    """All names of an index: its own one and its aliases."""
    known = await indexes.aliases.all()
    return {name, *(alias for alias, own in known.items() if own == name)}


async def switch(indexes: Indexes, alias: str, name: str | None, former: str | None) -> None:
    """Let an alias name an index in place of another, in one step.

    Args:
        indexes: of the store.
        alias: not the name of an index.
        name: of an index; None removes the alias.
        former: the index that the alias names now; None if there is no such alias.

    Raises:
        NotFoundError: there is no index of that name.
        ConflictError: an index has the name of the alias, another process changed the alias, or
            there are too many aliases.
    """
    aliases = indexes.aliases
    async with indexes.exclusive(alias):
        held = await aliases.all()
        if held.get(alias) != former:
            raise ConflictError("another request changed the alias: read it, then try again")
        if name is None:
            await aliases.remove(alias)
            return
        if any(table.startswith(f"{alias}.") for table in await indexes.tables()):
            raise ConflictError("an index has that name: use another name for the alias")
        await indexes.generations(name)
        if former is None and len(held) >= MOST:
            raise ConflictError(f"there are {MOST} aliases, which is the limit: delete one")
        await aliases.put(alias, name)
