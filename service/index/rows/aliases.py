"""Aliases: other names of indexes, the same for all processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from service.errors import ConflictError
from service.index.rows.keyed import KeyedTable
from service.index.storage.database import Database

if TYPE_CHECKING:
    from service.index.indexes import Indexes

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
