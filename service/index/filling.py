"""Adds the optional columns to a table of an earlier version, and fills ``terms``."""

from __future__ import annotations

import pyarrow as pa
import structlog

from service import executors
from service.index import sql
from service.index.documents import Index
from service.index.rows import terms
from service.index.rows.checksums import Part, texts
from service.index.rows.schema import OPTIONAL
from service.index.sql import Sql

log = structlog.get_logger("docsplit.index")

# documents of one commit
CHUNK = 64
_LACKING = sql.every(sql.LIVE, sql.negated(sql.given(terms.COLUMN)))
# a document that was written since its text was read has its own terms
_SAME = sql.every(
    Sql("target.digest = source.digest"), sql.negated(sql.given("target." + terms.COLUMN))
)


async def complete(index: Index) -> bool:
    """Whether the table has all columns, and all documents their terms.

    ``fill`` takes the documents with the lowest digests last: this looks only at them.
    """
    if _missing(index):
        return False
    rows = (await index.sample(CHUNK))["_rowid"].to_pylist()
    if not rows:
        return True
    found = await index.table.take_row_ids(rows).select([terms.COLUMN]).to_arrow()
    return bool(found[terms.COLUMN].null_count == 0)


async def add(index: Index) -> bool:
    """Add the columns that the table lacks, if any; the caller opens the index again."""
    missing = _missing(index)
    if missing:
        await index.table.add_columns(pa.schema(missing))
    return bool(missing)


def _missing(index: Index) -> list[pa.Field]:
    return [field for field in OPTIONAL if field.name not in index.schema.names]


async def fill(index: Index) -> int:
    """Compute the terms of all documents that have none; returns their number.

    Reads and writes continue. It skips documents whose text is damaged.
    """
    query = index.table.query().where(_LACKING).select(["id", "digest"])
    ids = texts((await query.to_arrow()).sort_by([("digest", "descending")])["id"])
    filled = 0
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        async for found in index.contents(part, Part.TEXT, columns=index.schema.names):
            if not found.num_rows:
                continue
            rows = await executors.STORE.run(_filled, found.select(index.schema.names))
            merge = index.table.merge_insert("id").when_matched_update_all(where=_SAME)
            result = await merge.execute(rows)
            filled += int(result.num_updated_rows)
    if ids:
        log.info("index_terms_filled", table=index.table.name, documents=filled)
    return filled


def _filled(found: pa.Table) -> pa.Table:
    pairs = zip(texts(found["text"]), texts(found["digest"]), strict=True)
    made = pa.array([terms.sealed(*pair) for pair in pairs], pa.binary())
    return found.set_column(found.schema.get_field_index(terms.COLUMN), terms.COLUMN, made)
