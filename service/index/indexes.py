"""The indexes below one path, in LanceDB: an embedded folder, a shared volume or ``s3://``.

Importing this module imports lancedb, which takes seconds: ``service.index.store`` does it on
first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import lancedb
from lancedb.index import FTS, BTree

from service.index import schema
from service.index.documents import Index
from service.index.faults import ConflictError, NotFoundError
from service.index.fields import FieldType
from service.index.schema import Identity


async def connect(uri: str) -> lancedb.AsyncConnection:
    """A LanceDB database whose every read sees what any process has committed before."""
    # with the default interval, None, a table once opened never sees another process's writes
    return await lancedb.connect_async(uri, read_consistency_interval=timedelta(0))


async def table_names(database: lancedb.AsyncConnection) -> list[str]:
    """Names of all tables, sorted."""
    names: list[str] = []
    token = None
    while True:
        page = await database.list_tables(page_token=token)
        names += page.tables
        token = page.page_token
        if not token:
            return sorted(names)


@dataclass(frozen=True, slots=True)
class Model:
    """The bundle that embeds what goes into an index."""

    name: str
    revision: str
    dimensions: int


class Indexes:
    """All indexes below a path.

    Args:
        database: where they lie.
        model: indexes of another revision can be described and deleted, and nothing else.
    """

    def __init__(self, database: lancedb.AsyncConnection, model: Model) -> None:
        self.database = database
        self.model = model

    async def create(self, name: str, fields: dict[str, FieldType]) -> bool:
        """Create an index; False where it is there already with the same fields.

        Raises:
            ConflictError: it is there with other fields or of another revision.
        """
        model = self.model
        made = schema.create(model.name, model.revision, model.dimensions, fields)
        created = True
        try:
            table = await self.database.create_table(name, schema=made)
        except ValueError as error:
            if "already exists" not in str(error):
                raise
            index = await self.open(name)
            if index.identity.fields != fields:
                raise ConflictError(
                    "the index exists with other fields: delete it first, or take another name"
                ) from error
            created, table = False, index.table
        # also where it was there: whoever created it may have ended before this
        held = {built.columns[0] for built in await table.list_indices()}
        if "id" not in held:
            await table.create_index("id", config=BTree())
        if "text" not in held:
            await table.create_index("text", config=FTS(with_position=False))
        return created

    async def names(self) -> list[str]:
        """Names of the indexes, sorted."""
        return await table_names(self.database)

    async def describe(self, name: str) -> tuple[Identity, int]:
        """An index's identity and how many documents it holds, whatever its revision.

        Raises:
            NotFoundError: there is none of that name.
        """
        with _missing_index():
            table = await self.database.open_table(name)
            return schema.identity(await table.schema()), await table.count_rows()

    async def open(self, name: str) -> Index:
        """An index of this model's revision.

        Raises:
            NotFoundError: there is none of that name.
            ConflictError: it is another revision's.
        """
        with _missing_index():
            table = await self.database.open_table(name)
            held = await table.schema()
        identity = schema.identity(held)
        if identity.revision != self.model.revision:
            raise ConflictError(
                f"the index holds vectors of model {identity.model}, revision "
                f"{identity.revision[:12]}; this service runs {self.model.name}, revision "
                f"{self.model.revision[:12]}: index the documents anew under another name, or "
                "serve the former bundle"
            )
        return Index(table, held, identity)

    async def drop(self, name: str) -> None:
        """Delete an index with all its documents.

        Raises:
            NotFoundError: there is none of that name.
        """
        with _missing_index():
            await self.database.drop_table(name)


@contextmanager
def _missing_index() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        # LanceDB has no type of its own for it
        if "was not found" not in str(error):
            raise
        raise NotFoundError("no index of that name; GET /indexes lists them") from error
