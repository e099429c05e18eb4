"""One open index: its documents, by id."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from lancedb.expr import Expr, col, lit
from lancedb.query import ColumnOrdering
from lancedb.table import AsyncTable

from service.documents.pooling import Vectors
from service.index import records
from service.index.faults import ConflictError, NotFoundError
from service.index.record import Record, Windows
from service.index.schema import Identity


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
    """An open index; every read sees all that was committed before it."""

    table: AsyncTable
    schema: pa.Schema
    identity: Identity

    def rows(self, documents: Sequence[Record]) -> pa.Table:
        """Documents as rows of this index."""
        return records.table(documents, self.schema, self.identity.fields, self.identity.revision)

    def same(self, uid: str) -> None:
        """Raise where the index was deleted and created anew since ``uid`` was read."""
        if self.identity.uid != uid:
            raise ConflictError("the index was deleted and created anew meanwhile: try again")

    async def upsert(self, rows: pa.Table) -> None:
        """Insert rows, or replace those of the same id, in one commit."""
        merge = self.table.merge_insert("id")
        await merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    async def delete(self, ids: Sequence[str]) -> None:
        """Delete documents; those that are not there are passed over."""
        await self.table.delete(col("id").isin([lit(i) for i in ids]))

    async def count(self) -> int:
        """How many documents there are."""
        return int(await self.table.count_rows())

    async def get(self, document_id: str) -> Stored:
        """One document.

        Raises:
            NotFoundError: it is not there.
        """
        columns = ["id", "text", "title", "metadata", "links", "vector"]
        found = await self.select(col("id").eq(lit(document_id)), columns, 1)
        if not found.num_rows:
            raise NotFoundError("no document of that id in this index")
        row = found.select(columns[:-1]).to_pylist()[0]
        row["metadata"] = json.loads(row["metadata"])
        return Stored(**row, vector=matrix(found)[0])

    async def windows(self, ids: Sequence[str]) -> dict[str, Windows]:
        """Windows of documents by id."""
        columns = ["id", "windows", "window_ends"]
        found = await self.select(col("id").isin([lit(i) for i in ids]), columns, len(ids))
        return {
            row["id"]: records.windows(row["windows"], row["window_ends"])
            for row in found.to_pylist()
        }

    async def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Digests of those documents that are there."""
        found = await self.select(col("id").isin([lit(i) for i in ids]), ["id", "digest"], len(ids))
        return dict(zip(found["id"].to_pylist(), found["digest"].to_pylist(), strict=True))

    async def links(self) -> tuple[Vectors, list[tuple[int, int]]]:
        """All vectors, and the links between them as (citing, cited) row numbers.

        Links to documents that are not there, and of a document to itself, are left out.
        """
        found = await self.table.query().select(["id", "vector", "links"]).to_arrow()
        ids = found["id"].to_pylist()
        rows = {name: row for row, name in enumerate(ids)}
        pairs = {
            (row, rows[name])
            for row, names in enumerate(found["links"].to_pylist())
            for name in names
            if name in rows and name != ids[row]
        }
        vectors = matrix(found) if ids else np.zeros((0, 1), dtype=np.float32)
        return vectors, sorted(pairs)

    async def page(self, after: str, limit: int) -> list[dict[str, Any]]:
        """Ids, titles and metadata in the order of ids, beginning behind ``after``."""
        query = self.table.query().where(col("id") > lit(after))
        query = query.order_by([ColumnOrdering(column_name="id")])
        found = await query.select(["id", "title", "metadata"]).limit(limit).to_arrow()
        return [row | {"metadata": json.loads(row["metadata"])} for row in found.to_pylist()]

    async def select(self, where: Expr, columns: list[str], limit: int) -> pa.Table:
        """Columns of the documents that pass, in no order."""
        query = self.table.query().where(where)
        return await query.select(columns).limit(limit).to_arrow()


def matrix(found: pa.Table) -> Vectors:
    """The ``vector`` column as float32 ``[rows, dimensions]``."""
    column = found["vector"].combine_chunks()
    flat: Vectors = np.asarray(column.flatten(), dtype=np.float32)
    return flat.reshape(len(column), -1)
