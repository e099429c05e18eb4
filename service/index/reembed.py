"""Brings one generation of an index up to date with another."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pyarrow as pa
import structlog
from lancedb.expr import col, lit
from lancedb.query import ColumnOrdering

from service.embedding.embedder import Document, UnusableInputError
from service.index.documents import Index
from service.index.rows import outline
from service.index.rows.checksums import Part
from service.index.rows.record import Encoding, Record, encoded

log = structlog.get_logger("docsplit.index")

Embed = Callable[[Sequence[str]], Awaitable[Sequence[Document | UnusableInputError]]]
Wrote = Callable[[int], None]

# ids compared at a time
PAGE = 4096
# texts read at a time
CHUNK = 16
# a commit ends with the chunk that reaches either limit
COMMIT_DOCUMENTS = 256
COMMIT_CHARACTERS = 400_000


async def catch_up(
    own: Index, other: Index, embed: Embed, wrote: Wrote, since: int | None = None
) -> int:
    """Copy the documents that ``own`` lacks or has in an older state from ``other``.

    A document keeps the time at which a client wrote it, and never replaces a later state. So the
    next pass completes one that was interrupted, and two processes may copy at once.

    Args:
        own: gets the documents.
        other: a generation of the same index.
        embed: the model of ``own``.
        wrote: called with the number of documents of each commit.
        since: read only the changes that clients made after this time, in microseconds.

    Returns:
        The number of documents that were older or missing.
    """
    changed = 0
    async for page in _pages(other, since):
        rows = page.to_pylist()
        held = await own.updated([row["id"] for row in rows])
        tombstones = {
            row["id"]: row["updated"]
            for row in rows
            if row["deleted"] and held.get(row["id"], row["updated"]) < row["updated"]
        }
        wanted = [
            row["id"]
            for row in rows
            if not row["deleted"] and held.get(row["id"], -1) < row["updated"]
        ]
        if tombstones:
            await own.tombstone(tombstones)
            wrote(len(tombstones))
        changed += len(tombstones) + len(wanted)
        await _copy(own, other, wanted, embed, wrote)
    return changed


async def _pages(index: Index, since: int | None) -> AsyncIterator[pa.Table]:
    after = ""
    while True:
        where = col("id") > lit(after)
        if since is not None:
            where = where & (col("updated") > lit(since))
        query = index.table.query().where(where).order_by([ColumnOrdering(column_name="id")])
        page = await query.select(["id", "updated", "deleted"]).limit(PAGE).to_arrow()
        if not page.num_rows:
            return
        yield page
        after = page["id"][-1].as_py()


async def _copy(own: Index, other: Index, ids: Sequence[str], embed: Embed, wrote: Wrote) -> None:
    rows: list[dict[str, Any]] = []
    for start in range(0, len(ids), CHUNK):
        rows += await _contents(other, ids[start : start + CHUNK])
        full = (
            len(rows) >= COMMIT_DOCUMENTS
            or sum(len(row["text"]) for row in rows) >= COMMIT_CHARACTERS
        )
        if rows and (full or start + CHUNK >= len(ids)):
            await own.merge(await embed_rows(rows, embed), [row["updated"] for row in rows])
            wrote(len(rows))
            rows = []


async def _contents(index: Index, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The current documents, which may be later than their ids."""
    parts = (Part.HEAD, Part.TEXT, Part.LINKS, Part.STATE)
    columns = outline.columns(index.schema.names)
    rows: list[dict[str, Any]] = []
    # a damaged document is not copied; ``docsplit-index check`` names it
    async for found in index.contents(ids, *parts, columns=columns):
        rows += found.drop_columns(["deleted"]).to_pylist()
    return rows


async def embed_rows(rows: Sequence[dict[str, Any]], embed: Embed) -> list[Record]:
    """Documents of stored rows with new vectors."""
    outcomes = await embed([row["text"] for row in rows])
    return [
        Record(
            id=row["id"],
            text=row["text"],
            title=row["title"],
            metadata=json.loads(row["metadata"]),
            links=row["links"],
            encoding=await _encoding(row, outcome, embed),
            outline=outline.opened(row.get(outline.COLUMN), row["digest"]),
        )
        for row, outcome in zip(rows, outcomes, strict=True)
    ]


async def _encoding(
    row: dict[str, Any], outcome: Document | UnusableInputError, embed: Embed
) -> Encoding:
    if not isinstance(outcome, UnusableInputError):
        return encoded(outcome)
    # it had tokens in another bundle's vocabulary, and this generation must not lose it
    log.warning("document_without_tokens")
    [named] = await embed([f"document {row['id']}"])
    if isinstance(named, UnusableInputError):
        raise named
    vector = encoded(named).vector
    return Encoding(vector, vector[None], [len(row["text"])])
