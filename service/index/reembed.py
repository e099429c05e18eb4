"""Bring one generation of an index up to date with another."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import structlog
from lancedb.expr import col, lit
from lancedb.query import ColumnOrdering

from service.embedding.embedder import Document, EmptyInputError
from service.index.documents import Index
from service.index.rows import checksums
from service.index.rows.checksums import Part
from service.index.rows.record import Encoding, Record, encoded

log = structlog.get_logger("docsplit.index")

Embed = Callable[[Sequence[str]], Awaitable[list[Document]]]
Wrote = Callable[[int], None]

# ids compared at a time
PAGE = 4096
# texts read and embedded at a time
CHUNK = 16
CHUNK_CHARACTERS = 20_000
# what is embedded is committed together, so much at most
COMMIT_DOCUMENTS = 256
COMMIT_CHARACTERS = 400_000


async def catch_up(
    own: Index, other: Index, embed: Embed, wrote: Wrote, since: int | None = None
) -> int:
    """Copy what ``other`` holds and ``own`` does not, or holds in an older state.

    A document keeps the time at which a caller wrote it, and never replaces a later one, so a pass
    that was interrupted, or done by two processes at once, is done by the next.

    Args:
        own: gets the documents, embedded anew.
        other: a generation of the same index.
        embed: the model of ``own``.
        wrote: told how many documents each commit wrote.
        since: look only at what callers wrote or deleted after this, in microseconds.

    Returns:
        How many documents were older or missing.
    """
    changed = 0
    async for page in _pages(other, since):
        rows = page.to_pylist()
        held = await own.updated([row["id"] for row in rows])
        buried = {
            row["id"]: row["updated"]
            for row in rows
            if row["deleted"] and held.get(row["id"], row["updated"]) < row["updated"]
        }
        wanted = [
            row["id"]
            for row in rows
            if not row["deleted"] and held.get(row["id"], -1) < row["updated"]
        ]
        if buried:
            await own.bury(buried)
            wrote(len(buried))
        changed += len(buried) + len(wanted)
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
    records: list[Record] = []
    updated: list[int] = []
    characters = 0

    async def commit() -> None:
        await own.merge(records, updated)
        wrote(len(records))
        records.clear()
        updated.clear()

    for start in range(0, len(ids), CHUNK):
        for rows in _chunks(await _contents(other, ids[start : start + CHUNK])):
            records += await embed_rows(rows, embed)
            updated += [row["updated"] for row in rows]
            characters += sum(len(row["text"]) for row in rows)
            if len(records) >= COMMIT_DOCUMENTS or characters >= COMMIT_CHARACTERS:
                await commit()
                characters = 0
    if records:
        await commit()


async def _contents(index: Index, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The documents as they are now, which may be later than when their ids were read."""
    parts = (Part.HEAD, Part.TEXT, Part.LINKS, Part.STATE)
    columns = checksums.columns(*parts)
    found: pa.Table = await index.select(col("id").isin([lit(i) for i in ids]), columns, len(ids))
    # a damaged document is not copied; ``docsplit-index check`` names it
    found = (await index.sound(found, *parts)).drop_columns(["digest", "deleted"])
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def _chunks(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    chunk: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        if chunk and size + len(row["text"]) > CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += len(row["text"])
    if chunk:
        yield chunk


async def embed_rows(rows: Sequence[dict[str, Any]], embed: Embed) -> list[Record]:
    """Documents of stored rows, embedded anew."""
    texts = [row["text"] for row in rows]
    tokenless: set[int] = set()
    while True:
        try:
            documents = await embed(texts)
            break
        except EmptyInputError as error:
            # it had tokens in another bundle's vocabulary, and must not be lost in this one
            log.warning("document_without_tokens")
            tokenless.add(error.index)
            texts[error.index] = f"document {rows[error.index]['id']}"
    return [
        _record(row, document, replaced=position in tokenless)
        for position, (row, document) in enumerate(zip(rows, documents, strict=True))
    ]


def _record(row: dict[str, Any], document: Document, *, replaced: bool) -> Record:
    encoding = encoded(document)
    if replaced:
        vector = encoding.vector
        encoding = Encoding(vector, vector[None], [len(row["text"])])
    return Record(
        id=row["id"],
        text=row["text"],
        title=row["title"],
        metadata=json.loads(row["metadata"]),
        links=row["links"],
        encoding=encoding,
    )
