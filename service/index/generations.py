"""Generations: an index has a table for each revision of the bundle that embedded its documents.

The table of index ``papers`` for revision ``0123456789ab…`` is ``papers.0123456789ab``; names of
indexes hold no dot.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import lancedb
import pyarrow as pa
from lancedb.expr import col, lit
from lancedb.table import AsyncTable

from service.index.documents import Index
from service.index.schema import PRIMARY_KEY, Identity

DIGITS = 12

_SCHEMA = pa.schema(
    [
        pa.field("generation", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("uid", pa.string(), nullable=False),
        pa.field("revision", pa.string(), nullable=False),
        pa.field("completed", pa.float64(), nullable=False),
    ]
)


def table_of(name: str, revision: str) -> str:
    """The table that holds an index's generation of a revision."""
    return f"{name}.{revision[:DIGITS]}"


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
    """Which generations are complete, for all processes.

    An index's first generation is complete as it is created. Entries are keyed by an id that is
    drawn for each table, so they never tell anything of a table that took the place of another.

    Args:
        database: where its table lies.
    """

    def __init__(self, database: lancedb.AsyncConnection) -> None:
        self._database = database
        self._known: set[str] = set()

    async def complete(self, identity: Identity) -> bool:
        """Whether a generation is complete; what has become so stays so."""
        if identity.original or identity.generation in self._known:
            return True
        where = col("generation").eq(lit(identity.generation))
        found = await (await self._table()).query().where(where).select(["uid"]).to_arrow()
        if found.num_rows:
            self._known.add(identity.generation)
        return bool(found.num_rows)

    async def mark(self, identity: Identity) -> None:
        """Tell all processes that a generation is complete."""
        row = {
            "generation": [identity.generation],
            "uid": [identity.uid],
            "revision": [identity.revision],
            "completed": [time.time()],
        }
        merge = (await self._table()).merge_insert("generation").when_not_matched_insert_all()
        await merge.execute(pa.table(row, schema=_SCHEMA))

    async def _table(self) -> AsyncTable:
        return await self._database.create_table("generations", schema=_SCHEMA, exist_ok=True)


def of_one_index(held: Sequence[Generation]) -> list[Generation]:
    """The generations that belong together, the complete ones first.

    Others of the same name are what an unfinished deletion left of a former index.
    """
    ordered = sorted(held, key=lambda g: (not g.complete, g.index.identity.revision))
    return [g for g in ordered if g.index.identity.uid == ordered[0].index.identity.uid]
