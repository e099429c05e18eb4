"""The indexes below one path, in LanceDB: an embedded folder, a shared volume or ``s3://``.

Importing this module imports lancedb, which takes seconds: ``service.index.store`` does it on
first use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pyarrow as pa
from cachetools import LRUCache
from lancedb.table import AsyncTable

from service.errors import BuildingError, ConflictError, NotFoundError, StoreError
from service.index.documents import Index
from service.index.generations import (
    Generation,
    Listing,
    Registry,
    Served,
    by_index,
    is_of,
    new_table,
    no_index,
    of_one_index,
    progress,
    tables_of,
)
from service.index.generations import Model as Model
from service.index.links.found import FoundLinks
from service.index.maps import Maps
from service.index.profiles import Profiles
from service.index.query.words import Vocabulary
from service.index.replicas.leases import Leases
from service.index.rows import schema
from service.index.rows.aliases import Aliases
from service.index.rows.columns import prepare
from service.index.rows.fields import FieldType
from service.index.storage.database import Database, missing, table_names
from service.index.storage.database import connect as connect

# after a kill another process creates and drops tables again after so long
_STRUCTURE_SECONDS = 30.0
_VOCABULARIES = 16  # some MB each
# seconds; every process that wrote before a table was deleted has ended by then
KEEP_DROPPED = 86_400.0


class Indexes:
    """All indexes below a path.

    Args:
        database: holds their tables.
        shared: database of leases, aliases, profiles, maps and the registry of generations.
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
            index = await self.writable(name)
        except NotFoundError:
            async with self.exclusive(name):
                await self.aliases.refuse(name)
                held = await self._held(name)
                if not any(generation.complete for generation in held):
                    if held:
                        await self._drop([generation.index.table.name for generation in held])
                    await self._create(name, fields, wanted, None)
                    return True
            index = await self.writable(name)
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
        """The generation of the served bundle of an index, for reading.

        With ``still`` every read sees the documents of now, as a request should. Otherwise each
        read first asks the store for later ones.

        Raises:
            NotFoundError: there is no index of that name.
            ConflictError: the service does not serve its bundle.
            BuildingError: the generation is not complete.
        """
        index = await self._own(name, still=still)
        if index is not None and await self.registry.complete(index.identity):
            if still:
                await self.database.note(index.table)
            return index
        generations = await self.generations(name, still=still)
        own = self.served.own(generations)
        if own is not None and own.complete:
            return own.index
        self.served.required(generations)
        raise BuildingError(*await progress(generations, own))

    async def writable(self, name: str, *, still: bool = False) -> Index:
        """The generation of the served bundle of an index, complete or not; created if missing.

        ``still`` is the one of ``open``.

        Raises:
            NotFoundError: there is no index of that name.
            ConflictError: the service does not serve its bundle.
        """
        index = await self._own(name, still=still)
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
            ConflictError: it must stay, see ``Served.former``.
        """
        async with self.exclusive(name):
            former = self.served.former(await self.generations(name), revision)
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

    async def _own(self, name: str, *, still: bool = False) -> Index | None:
        """The table of a served revision, without listing all tables if possible."""
        index = await self._first(name, self._listing.recent() or [], still=still)
        return index or await self._first(name, await self.tables(), still=still)

    async def _first(self, name: str, tables: Sequence[str], *, still: bool) -> Index | None:
        for model in self.served.models:
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
