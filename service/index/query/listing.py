"""Documents without a search: a page, documents of some ids, all that pass a filter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from lancedb.expr import col, lit
from lancedb.query import ColumnOrdering

from service.index import documents as sizes
from service.index.documents import LIVE, Index, named
from service.index.query.filters import Where, live
from service.index.rows import checksums
from service.index.rows.checksums import Part

# limit of the titles and metadata in one page
PAGE_BYTES = 8 * 2**20
# titles in the first read, which shows how large they are, and the most in any read
FIRST_READ = 16
_MOST_READ = 256
# ids of a scan in memory at a time
_IDS = 1024


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


@dataclass(slots=True)
class Fitting:
    """The first documents of some ids whose contents fit into an answer.

    Attributes:
        heads: in the order of the ids.
        unread: ids before those that do not fit, of damaged or missing documents.
        remaining: ids that do not fit.
    """

    heads: list[Head] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)


async def page(index: Index, after: str, limit: int, most: int = PAGE_BYTES) -> Page:
    """Documents in the order of ids, beginning after ``after``.

    Args:
        after: an id, or "" for the first page.
        most: bytes of titles and metadata; a page with one document may exceed it.
    """
    query = index.table.query().where(LIVE & (col("id") > lit(after)))
    query = query.order_by([ColumnOrdering(column_name="id")])
    found = await query.select(["id"]).limit(limit).to_arrow()
    ids: list[str] = found["id"].to_pylist()
    part = await fitting(index, ids, most)
    if part.remaining:
        return Page(part.heads, part.heads[-1].id)
    return Page(part.heads, ids[-1] if len(ids) == limit else None)


async def fitting(
    index: Index, ids: Sequence[str], most: int, texts: Mapping[str, int] | None = None
) -> Fitting:
    """The first documents of some ids whose contents fit; the first one always fits.

    Args:
        ids: of the documents, each once.
        most: characters of titles and metadata, and of texts.
        texts: characters of the documents' texts by id; none count by default.
    """
    found = Fitting()
    read = size = 0
    largest, wanted = 1, FIRST_READ
    while read < len(ids):
        chunk = ids[read : read + wanted]
        part = await heads(index, chunk)
        for place, name in enumerate(chunk, read):
            head = part.get(name)
            if head is None:
                found.unread.append(name)
                continue
            length = head.size + (texts[name] if texts else 0)
            if found.heads and size + length > most:
                found.remaining = list(ids[place:])
                return found
            size += length
            largest = max(largest, head.size)
            found.heads.append(head)
        read += len(chunk)
        wanted = next_read(most - size, largest)
    return found


def next_read(room: int, largest: int) -> int:
    """How many documents to read next, if each is as large as the largest one so far."""
    return max(1, min(_MOST_READ, room // largest))


async def heads(index: Index, ids: Sequence[str], rows: Sequence[int] = ()) -> dict[str, Head]:
    """Documents without their texts, by id; leaves out missing and damaged ones.

    Args:
        rows: their last known positions (``_rowid``), which save most of the search.
    """
    parts = (Part.HEAD, Part.STATE)
    sound = (await index.read(ids, parts, rows)).drop_columns(["digest", "deleted"])
    wanted = set(ids)
    return {row["id"]: Head(**row) for row in sound.to_pylist() if row["id"] in wanted}


async def every(index: Index, *parts: Part) -> AsyncIterator[pa.Table]:
    """Parts of all documents, some MB at a time; leaves out damaged ones."""
    query = index.table.query().where(LIVE).select(["id"])
    async for batch in await query.to_batches(max_batch_length=_IDS):
        ids = checksums.texts(pa.Table.from_batches([batch])["id"])
        async for found in index.contents(ids, *parts):
            yield found


# ids and versions that a reader of all matching documents has in memory at once
BATCH = 4096


@dataclass(slots=True)
class Many:
    """Documents of some ids.

    Attributes:
        documents: with text, or None if the caller did not ask for texts, in the order of the ids.
        damaged: ids of documents that do not match their checksums.
        remaining: ids of documents for which the answer has no room.
    """

    documents: list[tuple[Head, str | None]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)


async def read(
    index: Index,
    ids: Sequence[str],
    texts: bool,
    most: int = PAGE_BYTES,
    reserve: Callable[[int], None] = lambda _: None,
) -> Many:
    """Documents of some ids.

    Args:
        ids: each occurs once.
        texts: whether to read their texts.
        most: characters of all titles, metadata and texts; a single document may exceed it.
        reserve: called with the characters of the texts before it reads them.
    """
    lengths = await _lengths(index, ids, texts)
    wanted = [name for name in ids if name in lengths]
    part = await fitting(index, wanted, most, lengths)
    found = Many(
        missing=[name for name in ids if name not in lengths],
        damaged=part.unread,
        remaining=part.remaining,
    )
    if texts:
        reserve(sum(lengths[head.id] for head in part.heads))
        await _with_texts(index, [head.id for head in part.heads], found)
    else:
        found.documents = [(head, None) for head in part.heads]
    return found


async def versions(index: Index, ids: Sequence[str]) -> dict[str, int]:
    """Versions of the documents that the index has, by id."""
    held = await index.standing(ids)
    return {name: one.updated for name, one in held.items() if not one.deleted}


async def versions_matching(index: Index, where: Where) -> AsyncIterator[dict[str, int]]:
    """Versions by id of all documents that pass a filter now, in batches, without damaged ones."""
    query = index.table.query().where(live(where).form).select(checksums.columns(Part.STATE))
    batch: dict[str, int] = {}
    async for rows in await query.to_batches(max_batch_length=BATCH):
        found = await index.sound(pa.Table.from_batches([rows]), Part.STATE)
        for row in found.select(["id", "updated"]).to_pylist():
            batch[row["id"]] = row["updated"]
            if len(batch) == BATCH:
                yield batch
                batch = {}
    if batch:
        yield batch


async def count_matching(index: Index, where: Where) -> int:
    """How many documents pass a filter."""
    return int(await index.table.count_rows(live(where).sql))


async def _lengths(index: Index, ids: Sequence[str], texts: bool) -> dict[str, int]:
    """Characters of the texts of the documents that the index has, by id; 0 without texts."""
    found = await index.select(named(ids), sizes.SIZE_COLUMNS if texts else ["id"], len(ids))
    if texts and found.num_rows:
        return sizes.characters(found)
    return dict.fromkeys(checksums.texts(found["id"]), 0)


async def _with_texts(index: Index, ids: list[str], found: Many) -> None:
    if not ids:
        return
    # one read of all parts: they belong to one state of the document
    parts = (Part.HEAD, Part.STATE, Part.TEXT)
    rows = await index.select(named(ids), checksums.columns(*parts), len(ids))
    there = set(checksums.texts(rows["id"]))
    sound = (await index.sound(rows, *parts)).drop_columns(["digest", "deleted"])
    held: dict[str, dict[str, Any]] = {row["id"]: row for row in sound.to_pylist()}
    for name in ids:
        if name in held:
            text = held[name].pop("text")
            found.documents.append((Head(**held[name]), text))
        else:
            (found.damaged if name in there else found.missing).append(name)
