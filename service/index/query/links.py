"""The links that users gave to the documents of an index."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from service import executors
from service.index import sql
from service.index.documents import LIVE, Index
from service.index.rows import checksums

# rows in memory at a time; each has up to 10,000 links
_BATCH = 256
# ids that are converted at a time
_IDS = 4096


async def links_to(
    index: Index, ids: Sequence[str], most: int
) -> tuple[set[tuple[str, str]], bool]:
    """Citing and cited ids of links to some documents, without links to itself.

    Args:
        index: contains the links.
        ids: of the cited documents.
        most: citing documents to read.

    Returns:
        The pairs, and whether they are all of them. Which are missing is not determined.
    """
    found: set[tuple[str, str]] = set()
    if not ids:
        return found, True
    # a deleted document has no links, so the index of links answers without reading rows
    query = index.table.query().where(sql.overlaps("links", ids)).limit(most + 1)
    wanted = pa.array(ids)
    rows = 0
    async for batch in await query.select(["id", "links"]).to_batches(max_batch_length=_BATCH):
        rows += batch.num_rows
        cited, parents = pc.list_flatten(batch["links"]), pc.list_parent_indices(batch["links"])
        chosen = pc.is_in(cited, wanted)
        citing = _texts(batch["id"].take(parents.filter(chosen)))
        pairs = zip(citing, _texts(cited.filter(chosen)), strict=True)
        found |= {(one, other) for one, other in pairs if one != other}
    return found, rows <= most


async def counts_to(index: Index, ids: Sequence[str], without: str | None = None) -> list[int]:
    """How many other documents cite each of some documents; ``without`` does not count.

    The index of links answers, so the cost does not depend on the numbers.
    """
    others = [] if without is None else [without]
    conditions = (
        sql.every(sql.overlaps("links", [name]), sql.negated(sql.among("id", [name, *others])))
        for name in ids
    )
    return await asyncio.gather(*map(index.table.count_rows, conditions))


async def citations(index: Index) -> dict[str, set[str]]:
    """The documents that each citing document cites, by id.

    Leaves out links to missing documents, and of a document to itself.
    """
    there: set[str] = set()
    query = index.table.query().where(LIVE)
    async for batch in await query.select(["id"]).to_batches(max_batch_length=_IDS):
        there.update(await executors.STORE.run(_texts, batch["id"]))
    found: dict[str, set[str]] = {}
    query = index.table.query().where(LIVE)
    async for batch in await query.select(["id", "links"]).to_batches(max_batch_length=_BATCH):
        found |= await executors.STORE.run(_within, batch, there)
    return found


def _within(batch: pa.RecordBatch, there: set[str]) -> dict[str, set[str]]:
    """The links of a batch to documents that are there."""
    # one list at a time: Arrow lets no other thread run while it converts a column
    lists = (links.as_py() for links in batch["links"])
    pairs = zip(_texts(batch["id"]), lists, strict=True)
    own = ((name, there.intersection(cited) - {name}) for name, cited in pairs)
    return {name: cited for name, cited in own if cited}


def _texts(column: pa.Array) -> list[str]:
    return checksums.texts(pa.chunked_array([column]))
