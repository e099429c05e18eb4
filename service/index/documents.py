"""One open index: its documents, by id."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import structlog
from lancedb.expr import Expr, col, lit
from lancedb.query import ColumnOrdering
from lancedb.table import AsyncTable

from service.documents.pooling import Vectors
from service.index import checksums, records
from service.index.checksums import Part
from service.index.faults import ConflictError, DamagedError, NotFoundError
from service.index.record import Record, Windows
from service.index.schema import Identity

if TYPE_CHECKING:
    from service.index.words import Vocabulary

log = structlog.get_logger("docsplit.index")

# so much is hashed beside the event loop
_MUCH_BYTES = 1_000_000

LIVE = col("deleted").eq(lit(False))


@dataclass(frozen=True, slots=True)
class Stored:
    """A document as it was given, with the vector it got."""

    id: str
    text: str
    title: str | None
    metadata: dict[str, Any]
    links: list[str]
    vector: Vectors


@dataclass(frozen=True, slots=True)
class Index:
    """An open index; every read sees all that was committed before it.

    Attributes:
        damaged: told how many damaged rows a read met.
    """

    table: AsyncTable
    schema: pa.Schema
    identity: Identity
    vocabulary: Vocabulary
    damaged: Callable[[int], None] = lambda _: None

    def same(self, uid: str) -> None:
        """Raise where the index was deleted and created anew since ``uid`` was read."""
        if self.identity.uid != uid:
            raise ConflictError("the index was deleted and created anew meanwhile: try again")

    async def put(self, documents: Sequence[Record]) -> None:
        """Insert documents as of now, or replace those of the same id, in one commit."""
        held = await self.updated([document.id for document in documents])
        now = microseconds()
        # later than what it replaces, also where that came from a machine whose clock is ahead
        times = [max(now, held.get(document.id, 0) + 1) for document in documents]
        await self.merge(documents, times)

    async def merge(self, documents: Sequence[Record], updated: Sequence[int]) -> None:
        """Insert documents, or replace older ones of the same id, in one commit.

        Args:
            documents: no two of one id.
            updated: when each was written, in microseconds since the epoch.
        """
        identity = self.identity
        rows = await asyncio.to_thread(
            records.table, documents, updated, self.schema, identity.fields, identity.revision
        )
        await self._merge(rows)

    async def bury(self, deleted: Mapping[str, int]) -> None:
        """Delete documents, by id and time, unless they were written later, in one commit.

        Those that are not there are noted as deleted, too: no older copy of them gets in.
        """
        # LanceDB takes a vector that is absent for a bad one unless told
        await self._merge(records.tombstones(deleted, self.schema), on_bad_vectors="null")

    async def purge(self, before: int) -> None:
        """Forget documents that were deleted before a time."""
        where = f"deleted = true AND updated < {before}"
        if await self.table.count_rows(where):
            await self.table.delete(where)

    async def updated(self, ids: Sequence[str]) -> dict[str, int]:
        """When documents were written or deleted, of those that are or were there."""
        query = self.table.query().where(col("id").isin([lit(i) for i in ids]))
        found = await query.select(["id", "updated"]).to_arrow()
        return dict(zip(found["id"].to_pylist(), found["updated"].to_pylist(), strict=True))

    async def count(self) -> int:
        """How many documents there are."""
        return int(await self.table.count_rows("deleted = false"))

    async def has(self, document_id: str) -> bool:
        """Whether a document is there."""
        found = await self.select(col("id").eq(lit(document_id)), ["id"], 1)
        return bool(found.num_rows)

    async def _merge(self, rows: pa.Table, on_bad_vectors: str = "error") -> None:
        # so that of all writes of a document the latest stands, in whatever order they arrive
        merge = self.table.merge_insert("id")
        merge = merge.when_matched_update_all(where="target.updated < source.updated")
        merge = merge.when_not_matched_insert_all()
        await merge.execute(rows, on_bad_vectors=on_bad_vectors)

    async def get(self, document_id: str) -> Stored:
        """One document.

        Raises:
            NotFoundError: it is not there.
            DamagedError: what is stored of it does not fit its checksums.
        """
        parts = (Part.TEXT, Part.HEAD, Part.LINKS, Part.VECTOR)
        where = col("id").eq(lit(document_id))
        found = await self.select(where, checksums.columns(*parts), 1)
        if not found.num_rows:
            raise NotFoundError("no document of that id in this index")
        found = await self.sound(found, *parts)
        if not found.num_rows:
            raise DamagedError
        row = found.drop_columns(["vector", "digest"]).to_pylist()[0]
        row["metadata"] = json.loads(row["metadata"])
        return Stored(**row, vector=matrix(found)[0])

    async def windows(self, ids: Sequence[str]) -> dict[str, Windows]:
        """Windows of documents by id; those that are damaged are left out."""
        columns = checksums.columns(Part.WINDOWS)
        found = await self.select(col("id").isin([lit(i) for i in ids]), columns, len(ids))
        found = await self.sound(found, Part.WINDOWS)
        return {
            row["id"]: records.windows(row["windows"], row["window_ends"])
            for row in found.to_pylist()
        }

    async def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Digests of the contents of those documents that are there."""
        found = await self.select(col("id").isin([lit(i) for i in ids]), ["id", "digest"], len(ids))
        digests = map(checksums.content, checksums.texts(found["digest"]))
        return dict(zip(checksums.texts(found["id"]), digests, strict=True))

    async def links(self) -> dict[str, set[str]]:
        """The documents that each citing document cites, by id.

        Links to documents that are not there, and of a document to itself, are left out.
        """
        found = await self.table.query().where(LIVE).select(["id", "links"]).to_arrow()
        ids = found["id"].to_pylist()
        there = set(ids)
        links = {
            name: (there & set(cited)) - {name}
            for name, cited in zip(ids, found["links"].to_pylist(), strict=True)
        }
        return {name: cited for name, cited in links.items() if cited}

    async def sample(self, size: int) -> list[str]:
        """Texts of the documents whose digests are lowest: a draw that all replicas share."""
        found = await self.table.query().where(LIVE).select(["id", "digest"]).to_arrow()
        ids = found.sort_by("digest").slice(0, size)["id"].to_pylist()
        held = await self.select(col("id").isin([lit(i) for i in ids]), ["text"], size)
        texts: list[str] = held["text"].to_pylist()
        return texts

    async def page(self, after: str, limit: int) -> list[dict[str, Any]]:
        """Ids, titles and metadata in the order of ids, beginning behind ``after``.

        Damaged documents are left out; only the last page holds fewer than ``limit``.
        """
        rows: list[dict[str, Any]] = []
        while len(rows) < limit:
            query = self.table.query().where(LIVE & (col("id") > lit(after)))
            query = query.order_by([ColumnOrdering(column_name="id")])
            wanted = limit - len(rows)
            query = query.select(checksums.columns(Part.HEAD)).limit(wanted)
            found = await query.to_arrow()
            rows += (await self.sound(found, Part.HEAD)).drop_columns(["digest"]).to_pylist()
            if found.num_rows < wanted:
                break
            after = found["id"][-1].as_py()
        return [row | {"metadata": json.loads(row["metadata"])} for row in rows]

    async def sound(self, found: pa.Table, *parts: Part) -> pa.Table:
        """The rows whose parts fit their checksums; the others are logged and counted.

        Args:
            found: with ``checksums.columns(*parts)``.
        """
        if found.nbytes > _MUCH_BYTES:
            bad = await asyncio.to_thread(checksums.faults, found, *parts)
        else:
            bad = checksums.faults(found, *parts)
        if not any(bad):
            return found
        self.note_damage({part for row in bad for part in row}, sum(map(bool, bad)))
        return found.filter(pa.array([not row for row in bad]))

    def note_damage(self, parts: Collection[Part], rows: int) -> None:
        """Log and count rows that a read met and did not serve."""
        named = sorted(part.name.lower() for part in parts)
        log.error("row_damaged", table=self.table.name, parts=named, rows=rows)
        self.damaged(rows)

    async def select(self, where: Expr, columns: list[str], limit: int) -> pa.Table:
        """Columns of the documents that pass, in no order."""
        query = self.table.query().where(LIVE & where)
        return await query.select(columns).limit(limit).to_arrow()


def matrix(found: pa.Table) -> Vectors:
    """The ``vector`` column as float32 ``[rows, dimensions]``."""
    column = found["vector"].combine_chunks()
    flat: Vectors = np.asarray(column.flatten(), dtype=np.float32)
    return flat.reshape(len(column), -1)


def microseconds() -> int:
    """Now, since the epoch."""
    return time.time_ns() // 1000
