"""What a citation head reads of documents, besides the scores of a search.

It only ranks, so these columns are not verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from lancedb.expr import col, lit

from docsplit.heads.pairs import MOST_FIELDS, Facts
from docsplit.ranking.terms import bag
from service import executors
from service.index.documents import Index
from service.index.query.reading import Hit, Query
from service.index.rows import derived
from service.index.rows.checksums import texts
from service.index.rows.schema import PREFIX


def fields(index: Index) -> list[str]:
    """The declared fields whose differences are features: the first few numbers, by name."""
    kinds = index.identity.fields
    return sorted(name for name in kinds if kinds[name] in ("integer", "number"))[:MOST_FIELDS]


async def of_query(index: Index, query: Query) -> Facts:
    """The facts of a stored document or a text."""
    words = await executors.STORE.run(bag, query.text)
    unknown = Facts("", words, len(query.text), np.full(len(fields(index)), np.nan))
    if query.id is None:
        return unknown
    found = await index.select(col("id") == lit(query.id), _columns(index), 1)
    stored = _opened(index, found).get(query.id, unknown)
    return replace(unknown, title=stored.title, values=stored.values)


async def of_hits(index: Index, hits: Sequence[Hit], *, words: bool) -> list[Facts]:
    """The facts of found documents, with or without their words."""
    rows = [hit.row for hit in hits]
    columns = [*_columns(index), "window_ends"]
    if words and derived.TERMS in index.schema.names:
        columns.append(derived.TERMS)
    found = await index.table.take_row_ids(rows).select(columns).to_arrow()
    held = await executors.STORE.run(_opened, index, found)
    unknown = Facts("", b"", 0, np.full(len(fields(index)), np.nan))
    return [held.get(hit.id, unknown) for hit in hits]


def _columns(index: Index) -> list[str]:
    columns = ["id", "digest", *(PREFIX + name for name in fields(index))]
    # an earlier version did not limit titles
    return [*columns, "title"] if index.identity.bounded else columns


def _opened(index: Index, found: pa.Table) -> dict[str, Facts]:
    names = [PREFIX + name for name in fields(index)]
    held = {}
    for row, name, digest in zip(
        found.drop_columns(["id", "digest"]).to_pylist(),
        texts(found["id"]),
        texts(found["digest"]),
        strict=True,
    ):
        values = [np.nan if row[field] is None else float(row[field]) for field in names]
        held[name] = Facts(
            row.get("title") or "",
            derived.opened_terms(row.get(derived.TERMS), digest) or b"",
            max(row.get("window_ends") or [0]),
            np.array(values, dtype=np.float64),
        )
    return held
