"""Adds the optional columns to a table of an earlier version, and fills those of words."""

from __future__ import annotations

import pyarrow as pa
import structlog

from docsplit.ranking.words import lined
from service import executors
from service.index import sql
from service.index.documents import Index
from service.index.rows import terms
from service.index.rows.checksums import Part, texts
from service.index.rows.columns import LACKING, indexed, prepare
from service.index.rows.schema import OPTIONAL
from service.index.sql import Sql

log = structlog.get_logger("docsplit.index")

# documents of one commit
CHUNK = 64
# a document that was written since its text was read has its own words
_SAME = sql.every(
    Sql("target.digest = source.digest"), sql.negated(sql.given("target." + terms.WORDS))
)


async def complete(index: Index) -> bool:
    """Whether the table has all columns, and all documents their words and terms.

    ``fill`` takes the documents with the lowest digests last: this looks only at them.
    """
    if _missing(index) or terms.WORDS not in await indexed(index.table):
        return False
    rows = (await index.sample(CHUNK))["_rowid"].to_pylist()
    if not rows:
        return True
    found = await index.table.take_row_ids(rows).select([terms.WORDS]).to_arrow()
    return bool(found[terms.WORDS].null_count == 0)


async def add(index: Index) -> bool:
    """Add the columns that the table lacks, if any; the caller opens the index again."""
    missing = _missing(index)
    if missing:
        await index.table.add_columns(pa.schema(missing))
    return bool(missing)


def _missing(index: Index) -> list[pa.Field]:
    return [field for field in OPTIONAL if field.name not in index.schema.names]


async def fill(index: Index) -> int:
    """Compute the words and terms of all documents that have none; returns their number.

    Reads and writes continue. It skips documents whose text is damaged.
    """
    query = index.table.query().where(LACKING).select(["id", "digest"])
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
    await prepare(index.table)
    if ids:
        log.info("index_terms_filled", table=index.table.name, documents=filled)
    return filled


def _filled(found: pa.Table) -> pa.Table:
    held = texts(found["text"])
    ends = found["window_ends"].to_pylist()
    pairs = zip(held, texts(found["digest"]), strict=True)
    for name, made in (
        (terms.COLUMN, pa.array([terms.sealed(*pair) for pair in pairs], pa.binary())),
        (terms.WORDS, pa.array(map(lined, held, ends), pa.string())),
    ):
        found = found.set_column(found.schema.get_field_index(name), name, made)
    return found
