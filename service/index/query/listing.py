"""Documents without their texts: a page of an index, or documents of some ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from lancedb.expr import col, lit
from lancedb.query import ColumnOrdering

from service.index.documents import LIVE, Index
from service.index.rows import checksums
from service.index.rows.checksums import Part

# limit of the titles and metadata in one page
PAGE_BYTES = 8 * 2**20
# titles in the first read, which shows how large they are, and the most in any read
FIRST_READ = 16
MOST_READ = 256


@dataclass(frozen=True, slots=True)
class Head:
    """A document without its text.

    Attributes:
        metadata: a JSON object.
        updated: time of the last write, in microseconds since the epoch.
    """

    id: str
    title: str | None
    metadata: str
    updated: int

    @property
    def size(self) -> int:
        """The number of characters, which is close to the number of bytes."""
        return len(self.id) + len(self.title or "") + len(self.metadata)


@dataclass(frozen=True, slots=True)
class Page:
    """Documents in the order of their ids.

    Attributes:
        next: the next page begins after this id; None on the last page.
    """

    heads: list[Head]
    next: str | None


async def page(index: Index, after: str, limit: int, most: int = PAGE_BYTES) -> Page:
    """Documents in the order of ids, beginning after ``after``.

    Args:
        index: whose documents are listed.
        after: an id, or "" for the first page.
        limit: of documents.
        most: bytes of titles and metadata; a page with one document may exceed it.
    """
    query = index.table.query().where(LIVE & (col("id") > lit(after)))
    query = query.order_by([ColumnOrdering(column_name="id")])
    found = await query.select(["id"]).limit(limit).to_arrow()
    ids: list[str] = found["id"].to_pylist()
    held: list[Head] = []
    read = size = 0
    largest, wanted = 1, FIRST_READ
    while read < len(ids):
        chunk = ids[read : read + wanted]
        part = await heads(index, chunk)
        for name in chunk:
            head = part.get(name)
            length = head.size if head is not None else 0
            if held and size + length > most:
                return Page(held, held[-1].id)
            size += length
            largest = max(largest, length)
            if head is not None:
                held.append(head)
        read += len(chunk)
        wanted = max(1, min(MOST_READ, (most - size) // largest))
    return Page(held, ids[-1] if len(ids) == limit else None)


async def heads(index: Index, ids: Sequence[str], rows: Sequence[int] = ()) -> dict[str, Head]:
    """Documents without their texts, by id; leaves out missing and damaged ones.

    Args:
        index: contains the documents.
        ids: of the documents.
        rows: their last known positions (``_rowid``), which save most of the search.
    """
    parts = (Part.HEAD, Part.STATE)
    columns = checksums.columns(*parts)
    found = index.schema.empty_table().select(columns)
    if rows:
        # rows that moved or changed since then are missing here
        found = await index.table.take_row_ids(list(rows)).select(columns).to_arrow()
    missing = sorted(set(ids) - set(checksums.texts(found["id"])))
    if missing:
        where = col("id").isin([lit(i) for i in missing])
        further = await index.select(where, columns, len(missing))
        found = pa.concat_tables([found.cast(further.schema), further])
    sound = (await index.sound(found, *parts)).drop_columns(["digest", "deleted"])
    wanted = set(ids)
    return {row["id"]: Head(**row) for row in sound.to_pylist() if row["id"] in wanted}
