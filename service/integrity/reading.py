"""The reads that ``reader`` runs in a process of its own; each opens the table again."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from lancedb.table import AsyncTable

from service.index import sql
from service.index.documents import Index
from service.index.query.words import Vocabulary
from service.index.rows.schema import identity
from service.index.sql import Sql
from service.index.storage import manifest
from service.index.storage.database import connect
from service.integrity import rows as verified
from service.integrity.findings import Report

# the columns in the file of an index over strings
_ENTRIES = pa.schema([pa.field("values", pa.string()), pa.field("ids", pa.uint64())])
# The end of every Lance file (format 2): the place of the table of global buffers, their number,
# the number of columns, the version, the letters.
_FOOTER = struct.Struct("<QIIHH4s")


async def opened(database: str, table: str) -> AsyncTable:
    """A table as it is on the disk now."""
    return await (await connect(database)).open_table(table)


async def take(database: str, table: str, columns: Sequence[str], rows: Sequence[int]) -> pa.Table:
    """Rows by their row ids, with these, without the deleted rows."""
    query = (await opened(database, table)).take_row_ids(list(rows))
    return await query.select(list(columns)).with_row_id().to_arrow()


async def living(database: str, table: str, fragment: int) -> set[int]:
    """The row ids of a fragment's rows that are not deleted; reads no column."""
    query = (await opened(database, table)).query().select([]).with_row_id()
    found = await query.where(within(fragment)).to_arrow()
    return set(found["_rowid"].to_pylist())


def within(fragment: int) -> Sql:
    """The condition that a row is in a fragment."""
    first = fragment << 32
    return sql.within("_rowid", first, first + (1 << 32))


async def check(database: str, table: str, name: str) -> Report:
    """Verify the rows of an index, see ``service.integrity.rows``."""
    held = await opened(database, table)
    schema = await held.schema()
    report = Report()
    await verified.check(Index(held, schema, identity(schema), Vocabulary()), name, report)
    return report


async def former_ids(database: str, table: str, version: int, fragment: int) -> list[str]:
    """Ids of the documents in a fragment of a former version."""
    held = await opened(database, table)
    await held.checkout(version)
    query = held.query().where(sql.every(within(fragment), sql.LIVE)).select(["id"])
    found: list[str] = (await query.to_arrow())["id"].to_pylist()
    return found


async def indexed(file: Path, fragment: int) -> dict[int, str]:
    """The strings in a file of an index over a column, by row id; those of one fragment.

    LanceDB reads no index as a table. But the file has the form of a table's data, so this makes a
    table of two such columns, and puts the file into the place of its data.
    """
    with tempfile.TemporaryDirectory() as folder:
        database = await connect(folder)
        await database.create_table("entries", pa.table({"values": ["a"], "ids": [1]}, _ENTRIES))
        _replace_data(Path(folder, "entries.lance"), file)
        query = (await opened(folder, "entries")).query()
        first = fragment << 32
        found = await query.where(sql.within("ids", first, first + (1 << 32))).to_arrow()
    return dict(zip(found["ids"].to_pylist(), found["values"].to_pylist(), strict=True))


def _replace_data(folder: Path, file: Path) -> None:
    """Put a file into the place of the one data file of a table."""
    content = file.read_bytes()
    path = next(iter(manifest.versions(folder).values()))
    [[held]] = [fragment.data for fragment in manifest.read(path).fragments]
    (folder / held.path).write_bytes(content)
    path.write_bytes(manifest.resized(path.read_bytes(), len(content), _length(content)))


def _length(content: bytes) -> int:
    """The number of rows of a Lance file, from the first of its global buffers."""
    table = _FOOTER.unpack_from(content, len(content) - _FOOTER.size)[0]
    place, size = struct.unpack_from("<QQ", content, table)
    return manifest.file_rows(content[place : place + size])
