"""Which tables hold deleted texts in their files, and since when: a record that processes share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from service.index import sql
from service.index.rows.keyed import KeyedTable
from service.index.storage.database import KEEP_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Collection

    from service.index.storage.database import Database

# After this share of the promised time the files are written again. A second turn, for ids that
# the first had to leave, must fit into the rest, with the removal of former versions after each.
SHARE = 1 / 3


class Erasures:
    """The record."""

    def __init__(self, database: Database) -> None:
        columns = {"table": pa.string(), "since": pa.float64(), "written": pa.bool_()}
        self._table = KeyedTable(database, "erasures", **columns)

    async def note(self, table: str) -> None:
        """Note that files of a table hold deleted texts, unless that is noted."""
        written = sql.compare("target.written", "=", True)
        await self._put(table, written=False, replace=written)

    async def wrote(self, table: str) -> None:
        """Note that these files were written again, so that only former versions have them."""
        await self._put(table, written=True, replace=True)

    async def forget(self, tables: Collection[str]) -> None:
        """Remove tables from the record."""
        await self._table.delete(self._table.of(*tables))

    async def due(self, within: float) -> dict[str, bool]:
        """Tables that are to be maintained now, and whether their files were written again.

        Args:
            within: seconds after which no file may hold a deleted text.
        """
        waits = {False: within * SHARE, True: 1.1 * KEEP_VERSIONS.total_seconds()}
        now = time.time()
        rows = await self._table.rows()
        return {
            row["table"]: row["written"]
            for row in rows
            if now > row["since"] + waits[row["written"]]
        }

    async def _put(self, table: str, *, written: bool, replace: bool | sql.Sql) -> None:
        row = {"table": table, "since": time.time(), "written": written}
        await self._table.put(row, replace=replace)
        await self._table.tidy_sometimes()
