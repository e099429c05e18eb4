"""Generations: an index has a table for each revision of the bundle that embedded its documents.

A table of index ``papers`` for revision ``0123456789ab…`` is ``papers.0123456789ab.89abcdef``. The
last part is random for each table, so a process that still writes to a deleted table never meets
another table of the same name. Names of indexes have no dot.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import structlog

from service.errors import ConflictError, NotFoundError, StoreError, lance_fault
from service.index.documents import Index
from service.index.rows.keyed import KeyedTable
from service.index.rows.schema import Identity
from service.index.storage.database import Database
from service.logs import outline

log = structlog.get_logger("docsplit.index")

DIGITS = 12

# processes see a deletion by another process after this time, even if the table looks whole
LISTING_SECONDS = 1.0
# two tables with the same rows: damage to one harms no index
_COPIES = ("generations", "generations_copy")


def stem(name: str, revision: str) -> str:
    """The common start of the names of all tables of an index and a revision."""
    return f"{name}.{revision[:DIGITS]}"


def new_table(name: str, revision: str) -> str:
    """A name for a new table of an index and a revision."""
    return f"{stem(name, revision)}.{uuid.uuid4().hex[:8]}"


def is_of(table: str, name: str, revision: str) -> bool:
    """Whether a table's name belongs to an index and a revision."""
    return ".".join(table.split(".")[:2]) == stem(name, revision)


def by_index(tables: Sequence[str]) -> dict[str, list[str]]:
    """Tables by the name of their index, without tables of no index."""
    found: dict[str, list[str]] = {}
    for table in tables:
        name, dot, _ = table.partition(".")
        if dot:
            found.setdefault(name, []).append(table)
    return found


def tables_of(name: str, tables: Sequence[str]) -> list[str]:
    """The tables of an index.

    Raises:
        NotFoundError: there are none.
    """
    if (found := by_index(tables).get(name)) is None:
        raise no_index()
    return found


def no_index() -> NotFoundError:
    """The error of a name that no index has."""
    return NotFoundError("there is no index of that name; GET /indexes lists all")


@dataclass(frozen=True, slots=True)
class Model:
    """The bundle that embeds the documents of an index."""

    name: str
    revision: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of an index.

    Attributes:
        index: its table.
        complete: whether it ever had every document of the index; until then no one reads it.
    """

    index: Index
    complete: bool


class Served:
    """The served bundles, and which of them an index belongs to.

    An index belongs to the bundle under the name that it records, of any revision. Without such a
    bundle it belongs to that of a revision that it has.

    Args:
        models: the first one embeds new indexes that name none.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = tuple(models)

    def named(self, name: str | None) -> Model:
        """The bundle of a name, else the first one."""
        return next((model for model in self.models if model.name == name), self.models[0])

    def by_revision(self, revision: str) -> Model:
        """The bundle of a revision, else the first one."""
        held = (model for model in self.models if model.revision == revision)
        return next(held, self.models[0])

    def serves(self, identity: Identity, model: Model) -> bool:
        """Whether a generation of a bundle's revision belongs to this bundle.

        Raises:
            ConflictError: the generation is of another revision with the same first digits.
        """
        if identity.revision != model.revision:
            raise ConflictError("two revisions share their first 12 digits: take another index")
        named = [one for one in self.models if one.name == identity.model]
        return model in (named or [model])

    def of(self, generations: Sequence[Generation]) -> Model | None:
        """The bundle of an index; None if the service does not serve it."""
        held = [g.index.identity for g in generations if g.complete]
        names, revisions = {one.model for one in held}, {one.revision for one in held}
        found = [model for model in self.models if model.name in names]
        found = found or [model for model in self.models if model.revision in revisions]
        return min(found, key=lambda model: model.revision not in revisions, default=None)

    def required(self, generations: Sequence[Generation]) -> Model:
        """The bundle of an index.

        Raises:
            ConflictError: the service does not serve it.
        """
        model = self.of(generations)
        if model is None:
            name = generations[0].index.identity.model
            raise ConflictError(
                f"the bundle {name!r} embedded this index, and the service does not serve it: "
                f"start the service with it, or with its successor as --bundle {name}=PATH, which "
                "re-embeds the index"
            )
        return model

    def own(self, generations: Sequence[Generation]) -> Generation | None:
        """The generation of an index for its bundle's present revision."""
        model = self.of(generations)
        if model is None:
            return None
        mine = (g for g in generations if g.index.identity.revision == model.revision)
        return next(mine, None)

    def former(self, generations: Sequence[Generation], revision: str) -> Generation:
        """The generation of a revision, or of its first 12 digits, that may be deleted.

        Raises:
            NotFoundError: the index has none of that revision.
            ConflictError: the service serves it or serves none, or the served one is not complete.
        """
        self.required(generations)
        named = [g for g in generations if g.index.identity.revision.startswith(revision)]
        own = self.own(generations)
        if not named:
            raise NotFoundError("the index has no generation of that revision")
        if named[0] is own:
            raise ConflictError("the service serves this generation")
        if own is None or not own.complete:
            raise ConflictError("the served bundle's generation is not complete: wait for it")
        return named[0]


class Listing:
    """The tables that a process saw last, for a second, or until it creates or deletes one.

    Attributes:
        changes: number of tables that the process has created or deleted.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._tables: list[str] = []
        self._until = 0.0

    def recent(self) -> list[str] | None:
        """The tables; None if the process has to list them again."""
        return self._tables if time.monotonic() < self._until else None

    def keep(self, tables: list[str], changes: int) -> list[str]:
        """Keep tables that were listed after a number of changes, unless there are more by now."""
        if changes == self.changes:
            self._tables, self._until = tables, time.monotonic() + LISTING_SECONDS
        return tables

    def forget(self) -> None:
        """Note a change."""
        self.changes += 1
        self._until = 0.0


class Registry:
    """Records for all processes which generations are complete and which tables are deleted.

    An index's first generation is complete from the start. A record of one table never applies to
    another, since every table gets a new random id and name.

    Args:
        database: holds the registry's tables.
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
        """Whether a generation is complete; a complete generation stays complete.

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
                # an earlier version wrote only the first copy
                await self._mark(copy, identity)
            return True
        if faults:
            raise faults[0]
        return False

    async def mark(self, identity: Identity) -> None:
        """Record for all processes that a generation is complete; its rows are already on disk.

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
        except Exception as error:  # noqa: BLE001 the other copy may succeed
            log.error("generation_not_noted", table=copy.name, outline=outline(error))
            return error
        return None

    async def drop(self, tables: Collection[str]) -> None:
        """Record for all processes that tables are deleted, all of them at once.

        Only this record is reliable: a writer may create the folder of a removed table again.
        """
        rows = [{"table": table, "dropped": time.time()} for table in tables]
        await self._dropped.put(*rows, replace=False)
        await self._dropped.tidy_sometimes()

    async def dropped(self) -> dict[str, float]:
        """Deleted tables and when they were deleted, even if no files are left.

        If the record cannot be read, this returns the last known state. Existing indexes then
        still work; at worst, remains of a deleted index are visible.
        """
        try:
            self._gone = {row["table"]: row["dropped"] for row in await self._dropped.rows()}
        except Exception as error:
            if not _unreadable(error):
                raise
            log.error("dropped_tables_unreadable", outline=outline(error))
        return self._gone

    async def deletion(self, error: Exception) -> NotFoundError | None:
        """The reason of an error of LanceDB that names a table which was deleted meanwhile."""
        said = str(error)
        if ".lance" not in said and "was not found" not in said:
            return None
        # the record of a deletion comes before the removal of files
        tables = await self.dropped()
        if any(f"/{table}.lance" in said or f"'{table}'" in said for table in tables):
            return NotFoundError("the index was deleted during the request")
        return None

    async def overtook(self, error: Exception) -> bool:
        """Whether background work met an error because its table was deleted meanwhile."""
        try:
            return await self.deletion(error) is not None
        except Exception:  # noqa: BLE001 the store is gone, and the work reports its own error
            return False

    async def forget_dropped(self, tables: Collection[str]) -> None:
        """Remove the records of deleted tables."""
        await self._dropped.delete(self._dropped.of(*tables))


def _unreadable(error: Exception) -> bool:
    """Whether an error means that a table is damaged, not that the store is gone."""
    reason = error.reason if isinstance(error, StoreError) else lance_fault(error)
    return reason is not None and reason != "gone"


def of_one_index(held: Sequence[Generation]) -> list[Generation]:
    """The generations that belong together, the complete ones first.

    Others of the same name remain from an unfinished deletion of a former index.
    """
    ordered = sorted(held, key=lambda g: (not g.complete, g.index.identity.revision))
    return [g for g in ordered if g.index.identity.uid == ordered[0].index.identity.uid]


async def progress(generations: Sequence[Generation], own: Generation | None) -> tuple[int, int]:
    """The document counts of a generation and of the largest complete generation."""
    total = max([await g.index.count() for g in generations if g.complete])
    return min(await own.index.count(), total) if own is not None else 0, total
