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
from lancedb.expr import col, lit

from service.errors import StoreError, lance_fault
from service.index.documents import Index
from service.index.rows.schema import PRIMARY_KEY, Identity
from service.index.storage.database import Database
from service.logs import outline

log = structlog.get_logger("docsplit.index")

DIGITS = 12

_SCHEMA = pa.schema(
    [
        pa.field("generation", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("uid", pa.string(), nullable=False),
        pa.field("revision", pa.string(), nullable=False),
        pa.field("completed", pa.float64(), nullable=False),
    ]
)
# two tables of the same rows: damage to one harms no index
_COPIES = ("generations", "generations_copy")
_DROPPED = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("dropped", pa.float64(), nullable=False),
    ]
)


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
        database: where its table lies.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[str] = set()
        self._gone: dict[str, float] = {}

    async def complete(self, identity: Identity) -> bool:
        """Whether a generation is complete; what has become so stays so.

        Raises:
            StoreError: neither copy of the table says so, and one cannot be read.
        """
        if identity.original or identity.generation in self._known:
            return True
        where = col("generation").eq(lit(identity.generation))
        faults: list[Exception] = []
        lacking: list[str] = []
        for name in _COPIES:
            try:
                table = await self._database.find(name)
                held = 0 if table is None else await table.count_rows(where.to_sql())
            except Exception as error:
                if not _unreadable(error):
                    raise
                faults.append(error)
            else:
                lacking += [] if held else [name]
        if len(lacking) + len(faults) < len(_COPIES):
            self._known.add(identity.generation)
            for name in lacking:
                # an earlier version wrote the first alone, or a repair lost the row
                await self._mark(name, identity)
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
        outcomes = [await self._mark(name, identity) for name in _COPIES]
        faults = [fault for fault in outcomes if fault is not None]
        if len(faults) == len(_COPIES):
            raise faults[0]
        await self._database.sync()

    async def _mark(self, name: str, identity: Identity) -> Exception | None:
        row = {
            "generation": [identity.generation],
            "uid": [identity.uid],
            "revision": [identity.revision],
            "completed": [time.time()],
        }
        try:
            table = await self._database.provide(name, _SCHEMA)
            merge = table.merge_insert("generation").when_not_matched_insert_all()
            await merge.execute(pa.table(row, schema=_SCHEMA))
        except Exception as error:  # noqa: BLE001 the other copy may take it
            log.error("generation_not_noted", table=name, outline=outline(error))
            return error
        return None

    async def drop(self, tables: Collection[str]) -> None:
        """Tell all processes that tables are deleted, all of them at once.

        A writer may bring the folder of a removed table back, so that only this tells.
        """
        rows = {"table": list(tables), "dropped": [time.time()] * len(tables)}
        table = await self._database.provide("dropped", _DROPPED)
        merge = table.merge_insert("table").when_not_matched_insert_all()
        await merge.execute(pa.table(rows, schema=_DROPPED))

    async def dropped(self) -> dict[str, float]:
        """Tables that are deleted, whether or not something of them is left, and since when.

        Where that cannot be read, as this process knew it last: the indexes that are there are
        read and written on, and at worst what is left of a deleted one is seen.
        """
        try:
            table = await self._database.find("dropped")
            if table is None:
                return {}
            held = await table.query().to_arrow()
            found = zip(held["table"].to_pylist(), held["dropped"].to_pylist(), strict=True)
            self._gone = dict(found)
        except Exception as error:
            if not _unreadable(error):
                raise
            log.error("dropped_tables_unreadable", outline=outline(error))
        return self._gone

    async def forget_dropped(self, tables: Collection[str]) -> None:
        """Forget that tables are deleted."""
        gone = col("table").isin([lit(name) for name in tables])
        await (await self._database.provide("dropped", _DROPPED)).delete(gone.to_sql())


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
