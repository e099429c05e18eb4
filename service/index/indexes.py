"""The indexes below one path, in LanceDB: an embedded folder, a shared volume or ``s3://``.

An index has a table, a generation, for each revision of the bundle that embedded its documents. A
table of index ``papers`` for revision ``0123456789ab…`` is ``papers.0123456789ab.89abcdef``. The
last part is random for each table, so a process that still writes to a deleted table never meets
another table of the same name. Names of indexes have no dot.

Importing this module imports lancedb, which takes seconds: ``service.index.store`` does it on
first use.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import structlog
from cachetools import LRUCache
from lancedb.table import AsyncTable

from service.errors import BuildingError, ConflictError, NotFoundError, StoreError, lance_fault
from service.index.documents import Index
from service.index.erasures import Erasures
from service.index.found_links import FoundLinks
from service.index.leases import Leases
from service.index.maps import Maps
from service.index.profiles import Profiles
from service.index.query.words import Vocabulary
from service.index.rows import schema
from service.index.rows.fields import FieldType
from service.index.rows.keyed import Aliases, KeyedTable
from service.index.rows.schema import Identity, prepare
from service.index.storage.database import Database, missing, table_names
from service.index.storage.database import connect as connect
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
    """The bundle that embeds the documents of an index.

    Attributes:
        former: whether the first bundle succeeds it: it only answers for the first one until that
            has embedded an index.
    """

    name: str
    revision: str
    dimensions: int
    former: bool = False


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
    bundle it belongs to that of a revision that it has, or to the successor of that bundle.

    Args:
        models: the first one embeds new indexes that name none.

    Attributes:
        models: those that indexes belong to.
        former: the bundle that the first one succeeds; None without one.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = tuple(model for model in models if not model.former)
        self.former = next((model for model in models if model.former), None)

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
        return model.former or model in (named or [model])

    def of(self, generations: Sequence[Generation]) -> Model | None:
        """The bundle of an index; None if the service does not serve it."""
        held = [g.index.identity for g in generations if g.complete]
        names, revisions = {one.model for one in held}, {one.revision for one in held}
        found = [model for model in self.models if model.name in names]
        found = found or [model for model in self.models if model.revision in revisions]
        if not found and self.former is not None and self.former.revision in revisions:
            found = [self.models[0]]
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

    def kept(self, generations: Sequence[Generation]) -> Generation | None:
        """The complete generation of the former bundle."""
        if self.former is None:
            return None
        revision = self.former.revision
        held = (g for g in generations if g.complete and g.index.identity.revision == revision)
        return next(held, None)

    def answering(self, generations: Sequence[Generation]) -> Generation | None:
        """The generation that requests read and write: that of the former bundle until the other
        one is complete; None before that.
        """
        own = self.own(generations)
        return own if own is not None and own.complete else self.kept(generations)

    def deletable(self, generations: Sequence[Generation], revision: str) -> Generation:
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
    another, since every table gets a new random id and name. A further generation is *closing*
    before it is complete: from then on, who writes to the generation that still answers copies the
    documents before the acknowledgement, so that one more pass finds all others.

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

    async def closing(self, identity: Identity) -> bool:
        """Whether a generation is about to be complete, or is."""
        return await self.complete(identity) or await self.complete(_closing(identity))

    async def close(self, identity: Identity) -> None:
        """Record for all processes that a generation is about to be complete, as ``mark`` does."""
        await self.mark(_closing(identity))

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


def _closing(identity: Identity) -> Identity:
    """The key of the record that a generation is closing."""
    return replace(identity, generation=f"{identity.generation}.closing")


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


# after a kill another process creates and drops tables again after so long
_STRUCTURE_SECONDS = 30.0
_VOCABULARIES = 16  # some MB each
# seconds; every process that wrote before a table was deleted has ended by then
KEEP_DROPPED = 86_400.0


class Indexes:
    """All indexes below a path.

    Args:
        database: holds their tables.
        shared: database of leases, aliases, profiles, maps, erasures and the registry of
            generations.
        models: the served bundles; each index is read and written by the generation of one.
        damaged: called with the number of damaged rows that a read met.
        fitted: called with the outcome of each fit of a profile.
    """

    def __init__(
        self,
        database: Database,
        shared: Database,
        models: Model | Sequence[Model],
        damaged: Callable[[int], None] = lambda _: None,
        fitted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.database = database
        self._damaged = damaged
        self.served = Served([models] if isinstance(models, Model) else models)
        self.leases = Leases(shared)
        self.registry = Registry(shared)
        self.aliases = Aliases(shared)
        self.profiles = Profiles(shared, fitted)
        self.maps = Maps(shared)
        self.found_links = FoundLinks(shared)
        self.erasures = Erasures(shared)
        self._structure = asyncio.Lock()
        self._vocabularies: LRUCache[str, Vocabulary] = LRUCache(_VOCABULARIES)
        self._listing = Listing()

    async def create(
        self, name: str, fields: dict[str, FieldType], model: str | None = None
    ) -> bool:
        """Create an index; False if it already exists with the same fields.

        ``model`` names the served bundle that embeds its documents; the first one by default.

        Raises:
            ConflictError: it exists with other fields or for another bundle, or is an alias.
        """
        wanted = self.served.named(model)
        # another process may just have deleted an index of that name
        self._listing.forget()
        try:
            index = await self.own(name)
        except NotFoundError:
            async with self.exclusive(name):
                await self.aliases.refuse(name)
                held = await self._held(name)
                if not any(generation.complete for generation in held):
                    if held:
                        await self._drop([generation.index.table.name for generation in held])
                    await self._create(name, fields, wanted, None)
                    return True
            index = await self.own(name)
        if model is not None and index.identity.revision != wanted.revision:
            raise ConflictError("the index exists for another bundle: use another name")
        if index.identity.fields != fields:
            raise ConflictError("the index has other fields: delete it first, or use another name")
        # the process that created it may have ended before this
        await prepare(index.table)
        await self.database.sync()
        return False

    async def names(self) -> list[str]:
        """Names of the indexes, sorted."""
        return sorted(by_index(await self.tables()))

    async def tables(self) -> list[str]:
        """Tables of all indexes, sorted, without deleted ones."""
        changes = self._listing.changes
        names, dropped = await table_names(self.database), await self.registry.dropped()
        return self._listing.keep([one for one in names if one not in dropped], changes)

    async def recent_tables(self) -> list[str]:
        """The result of ``tables`` now, or of up to a second ago."""
        held = self._listing.recent()
        return await self.tables() if held is None else held

    async def sweep(self) -> list[str]:
        """Remove the remains of deleted tables, and forget tables that were deleted long ago.

        Returns:
            The result of ``tables``.
        """
        changes = self._listing.changes
        names, dropped = await table_names(self.database), await self.registry.dropped()
        for table in dropped.keys() & names:
            await self._remove(table)
        old = time.time() - KEEP_DROPPED
        gone = [table for table, since in dropped.items() if since < old and table not in names]
        if gone:
            await self.registry.forget_dropped(gone)
            await self.profiles.forget(gone)
            await self.maps.forget(gone)
            await self.erasures.forget(gone)
        return self._listing.keep([one for one in names if one not in dropped], changes)

    async def generations(self, name: str, *, still: bool = False) -> list[Generation]:
        """All generations of an index, the complete ones first; ``still`` is the one of ``open``.

        Raises:
            NotFoundError: there is no index of that name.
        """
        found = of_one_index(await self._held(name, still=still))
        if not found or not found[0].complete:
            raise no_index()
        return found

    async def open(self, name: str, *, still: bool = False) -> Index:
        """The generation of an index that answers: of its bundle, or until then of the former one.

        With ``still`` every read sees the documents of now, as a request should. Otherwise each
        read first asks the store for later ones.

        Raises:
            NotFoundError: there is no index of that name.
            ConflictError: the service does not serve its bundle.
            BuildingError: the generation is not complete, and there is none of the former bundle.
        """
        index = await self._answering(name, still=still)
        if index is not None:
            if still:
                await self.database.note(index.table)
            return index
        generations = await self.generations(name, still=still)
        found = self.served.answering(generations)
        if found is not None:
            return found.index
        self.served.required(generations)
        raise BuildingError(*await progress(generations, self.served.own(generations)))

    async def writable(self, name: str, *, still: bool = False) -> Index:
        """The generation that takes writes: the one of ``open``, else the one of ``own``."""
        return await self._answering(name, still=still) or await self.own(name, still=still)

    async def own(self, name: str, *, still: bool = False) -> Index:
        """The generation of the served bundle of an index, complete or not; created if missing.

        ``still`` is the one of ``open``.

        Raises:
            NotFoundError: there is no index of that name.
            ConflictError: the service does not serve its bundle.
        """
        index = await self._of(name, self.served.models, still=still)
        if index is not None and await self.registry.complete(index.identity):
            return index
        own = self.served.own(await self.generations(name, still=still))
        if own is not None:
            return own.index
        async with self.exclusive(name):
            generations = await self.generations(name)
            own = self.served.own(generations)
            if own is not None:
                return own.index
            source = generations[0].index.identity
            return await self._create(
                name, source.fields, self.served.required(generations), source
            )

    async def kept(self, name: str, *, still: bool = False) -> Index | None:
        """The complete generation of the former bundle; ``still`` is the one of ``open``."""
        if self.served.former is None:
            return None
        kept = self.served.kept(await self.generations(name, still=still))
        return None if kept is None else kept.index

    async def filled(self, name: str) -> list[Index]:
        """The generations that services write to: of the bundle of an index, and the former one."""
        own, kept = await self.own(name), await self.kept(name)
        return [own] if kept is None else [own, kept]

    async def written(self, name: str, generation: str, *, still: bool = False) -> Index:
        """The generation for which a request made its rows, if it may still take them.

        Args:
            name: of the index.
            generation: see ``Identity``.
            still: as for ``open``.

        Raises:
            NotFoundError: there is no index of that name.
            ConflictError: the generation is gone.
        """
        index = await self.writable(name, still=still)
        if index.identity.generation == generation:
            return index
        for one in await self.generations(name, still=still):
            if one.index.identity.generation == generation:
                return one.index
        raise ConflictError("the index changed during the request: try again")

    async def needs_former(self) -> bool:
        """Whether the former bundle answers for an index now.

        Raises:
            ConflictError: an index of a served bundle has the vectors of neither.
        """
        needed = False
        for name in await self.names():
            generations = await self.generations(name)
            found, own = self.served.answering(generations), self.served.own(generations)
            if found is None and self.served.of(generations) is not None:
                held = generations[0].index.identity
                raise ConflictError(
                    f"former_bundle: the index {name!r} has vectors of the bundle {held.model!r}, "
                    f"revision {held.revision[:12]}, and the former bundle has another revision: "
                    "name that one, or leave the setting out, and reads of the index get 503 until "
                    "the service has embedded it"
                )
            needed = needed or (found is not None and found is not own)
        return needed

    async def holds(self, name: str, document_id: str) -> bool:
        """Whether any generation of an index holds a document."""
        for generation in await self.generations(name, still=True):
            if await generation.index.has(document_id):
                return True
        return False

    async def drop(self, name: str) -> str | None:
        """Delete an index with all its generations.

        Returns:
            Its ``uid``; None if it is damaged, or the process that created it ended meanwhile.

        Raises:
            NotFoundError: there is no index of that name.
        """
        tables_of(name, await self.tables())
        async with self.exclusive(name):
            try:
                uid = next((one.index.identity.uid for one in await self._held(name)), None)
            except StoreError as error:
                if error.reason != "damaged":
                    raise
                uid = None
            await self._drop(tables_of(name, await self.tables()))
        return uid

    async def drop_generation(self, name: str, revision: str, *, check: bool = False) -> None:
        """Delete one generation of an index.

        Args:
            name: of the index.
            revision: or its first 12 digits.
            check: only raise the errors that the deletion would raise.

        Raises:
            NotFoundError: no such index or generation.
            ConflictError: it must stay, see ``Served.deletable``.
        """
        async with self.exclusive(name):
            former = self.served.deletable(await self.generations(name), revision)
            if not check:
                await self._drop([former.index.table.name])

    async def _create(
        self,
        name: str,
        fields: dict[str, FieldType],
        model: Model,
        source: schema.Identity | None,
    ) -> Index:
        made = schema.create(model.name, model.revision, model.dimensions, fields, source)
        table = await self.database.create_table(new_table(name, model.revision), schema=made)
        self._listing.forget()
        await prepare(table)
        await self.database.sync()
        return self._index(table, made)

    async def _drop(self, tables: list[str]) -> None:
        await self.registry.drop(tables)
        # otherwise a power failure could leave half a table without the record of its deletion
        await self.database.sync()
        self._listing.forget()
        for table in tables:
            await self._remove(table)
        await self.profiles.forget(tables)
        await self.maps.forget(tables)

    async def _remove(self, table: str) -> None:
        try:
            await self.database.drop_table(table, ignore_missing=True)
        except RuntimeError as error:
            # another process added a file during the removal: the next sweep removes the folder
            if "not empty" not in str(error):
                raise

    async def _answering(self, name: str, *, still: bool) -> Index | None:
        """The table that answers, without listing all tables if possible."""
        former = self.served.former
        for models in (self.served.models, () if former is None else (former,)):
            index = await self._of(name, models, still=still) if models else None
            if index is not None and await self.registry.complete(index.identity):
                return index
        return None

    async def _of(self, name: str, models: Sequence[Model], *, still: bool) -> Index | None:
        """The table of the revision of one of some bundles."""
        index = await self._first(name, models, self._listing.recent() or [], still=still)
        return index or await self._first(name, models, await self.tables(), still=still)

    async def _first(
        self, name: str, models: Sequence[Model], tables: Sequence[str], *, still: bool
    ) -> Index | None:
        for model in models:
            for table in (t for t in tables if is_of(t, name, model.revision)):
                index = await self.table(table, still=still)
                if index is not None and self.served.serves(index.identity, model):
                    return index
        return None

    async def _held(self, name: str, *, still: bool = False) -> list[Generation]:
        """All generations under a name, the complete ones first."""
        found = []
        tables = by_index(await self.tables()).get(name, [])
        for table in tables:
            index = await self.table(table, still=still)
            if index is not None:
                found.append(Generation(index, await self.registry.complete(index.identity)))
        return sorted(found, key=lambda g: not g.complete)

    async def table(self, table: str, *, still: bool = False) -> Index | None:
        """An index's table of any generation; None if it does not exist."""
        try:
            opened = await self.database.open_table(table, still=still)
            held = await opened.schema()
            if not held.names and await self.database.verify(table):
                # LanceDB reads a manifest of zeros as an empty table
                return await self.table(table, still=still)
        except (ValueError, RuntimeError) as error:
            if not missing(error):
                raise
            return None
        return self._index(opened, held)

    def _index(self, table: AsyncTable, held: pa.Schema) -> Index:
        identity = schema.identity(held)
        vocabulary = self._vocabularies.setdefault(identity.generation, Vocabulary())
        return Index(table, held, identity, vocabulary, self._damaged, self.database.row_cache)

    @asynccontextmanager
    async def exclusive(self, name: str) -> AsyncIterator[None]:
        """Keep others from creating or dropping tables of an index until the block ends."""
        async with self._structure:
            while True:
                if await self.leases.acquire(name, _STRUCTURE_SECONDS):
                    break
                await asyncio.sleep(0.1)
            async with self.leases.kept(name, _STRUCTURE_SECONDS):
                yield
