"""Generations: an index has a table for each revision of the bundle that embedded its documents.

A table of index ``papers`` for revision ``0123456789ab…`` is ``papers.0123456789ab.89abcdef``, the
last part drawn anew for every table: whoever still writes to a deleted one never meets another in
its place. Names of indexes hold no dot.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import structlog

from service.errors import StoreError, lance_fault
from service.index.documents import Index
from service.index.rows.keyed import KeyedTable
from service.index.rows.schema import Identity
from service.index.storage.database import Database
from service.logs import outline

log = structlog.get_logger("docsplit.index")

DIGITS = 12

# two tables of the same rows: damage to one harms no index
_COPIES = ("generations", "generations_copy")


def stem(name: str, revision: str) -> str:
    """What the names of all tables of an index and a revision begin with."""
    return f"{name}.{revision[:DIGITS]}"


def new_table(name: str, revision: str) -> str:
    """A name for a table that is to hold an index's generation of a revision."""
    return f"{stem(name, revision)}.{uuid.uuid4().hex[:8]}"


def is_of(table: str, name: str, revision: str) -> bool:
    """Whether a table is an index's generation of a revision, going by its name."""
    return ".".join(table.split(".")[:2]) == stem(name, revision)


def by_index(tables: Sequence[str]) -> dict[str, list[str]]:
    """Tables by the name of their index; tables of no index are left out."""
    found: dict[str, list[str]] = {}
    for table in tables:
        name, dot, _ = table.partition(".")
        if dot:
            found.setdefault(name, []).append(table)
    return found


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of an index.

    Attributes:
        index: its table.
        complete: whether it has held every document of the index; until then it is not read.
    """

    index: Index
    complete: bool


class Registry:
    """Which generations are complete and which tables are deleted, for all processes.

    An index's first generation is complete as it is created. What is told of a table never holds
    for another, since both ids and names are drawn anew for each.

    Args:
        database: where its tables lie.
    """

    def __init__(self, database: Database) -> None:
        columns = {"generation": pa.string(), "uid": pa.string(), "revision": pa.string()}
        self._database = database
        self._copies = [
            KeyedTable(database, name, **columns, completed=pa.float64()) for name in _COPIES
        ]
        self._dropped = KeyedTable(database, "dropped", table=pa.string(), dropped=pa.float64())
        self._known: set[str] = set()
        self._gone: dict[str, float] = {}

    async def complete(self, identity: Identity) -> bool:
        """Whether a generation is complete; what has become so stays so.

        Raises:
            StoreError: neither copy of the table says so, and one cannot be read.
        """
        if identity.original or identity.generation in self._known:
            return True
        faults: list[Exception] = []
        lacking: list[KeyedTable] = []
        for copy in self._copies:
            try:
                row = await copy.get(identity.generation, ["generation"])
            except Exception as error:
                if not _unreadable(error):
                    raise
                faults.append(error)
            else:
                lacking += [copy] if row is None else []
        if len(lacking) + len(faults) < len(_COPIES):
            self._known.add(identity.generation)
            for copy in lacking:
                # an earlier version wrote only the first, or a repair lost the row
                await self._mark(copy, identity)
            return True
        if faults:
            raise faults[0]
        return False

    async def mark(self, identity: Identity) -> None:
        """Tell all processes that a generation is complete, which is on disk before.

        Raises:
            StoreError: no copy of the table can be written.
        """
        await self._database.sync()
        outcomes = [await self._mark(copy, identity) for copy in self._copies]
        faults = [fault for fault in outcomes if fault is not None]
        if len(faults) == len(_COPIES):
            raise faults[0]
        await self._database.sync()

    async def _mark(self, copy: KeyedTable, identity: Identity) -> Exception | None:
        row = {
            "generation": identity.generation,
            "uid": identity.uid,
            "revision": identity.revision,
            "completed": time.time(),
        }
        try:
            await copy.put(row, replace=False)
        except Exception as error:  # noqa: BLE001 the other copy may take it
            log.error("generation_not_noted", table=copy.name, outline=outline(error))
            return error
        return None

    async def drop(self, tables: Collection[str]) -> None:
        """Tell all processes that tables are deleted, all of them at once.

        A writer may bring the folder of a removed table back, so that only this tells.
        """
        now = time.time()
        rows = [{"table": table, "dropped": now} for table in tables]
        await self._dropped.put(*rows, replace=False)

    async def dropped(self) -> dict[str, float]:
        """Tables that are deleted, whether or not something of them is left, and since when.

        Where that cannot be read, as this process knew it last: the indexes that are there are
        read and written on, and at worst what is left of a deleted one is seen.
        """
        try:
            self._gone = {row["table"]: row["dropped"] for row in await self._dropped.rows()}
        except Exception as error:
            if not _unreadable(error):
                raise
            log.error("dropped_tables_unreadable", outline=outline(error))
        return self._gone

    async def forget_dropped(self, tables: Collection[str]) -> None:
        """Forget that tables are deleted."""
        await self._dropped.delete(self._dropped.of(*tables))


def _unreadable(error: Exception) -> bool:
    """Whether an error says that a table is damaged, and not that the store is gone."""
    reason = error.reason if isinstance(error, StoreError) else lance_fault(error)
    return reason is not None and reason != "gone"


def of_one_index(held: Sequence[Generation]) -> list[Generation]:
    """The generations that belong together, the complete ones first.

    Others of the same name are what an unfinished deletion left of a former index.
    """
    ordered = sorted(held, key=lambda g: (not g.complete, g.index.identity.revision))
    return [g for g in ordered if g.index.identity.uid == ordered[0].index.identity.uid]


async def progress(generations: Sequence[Generation], own: Generation | None) -> tuple[int, int]:
    """How many documents a generation holds, and how many the largest complete one."""
    total = max([await g.index.count() for g in generations if g.complete])
    return min(await own.index.count(), total) if own is not None else 0, total
