"""Many documents at once: by id, and the ids and versions of all that pass a filter."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from service.index.documents import Index, named
from service.index.query import listing
from service.index.query.filters import Where, live
from service.index.query.listing import PAGE_BYTES, Head
from service.index.rows import checksums, sizes
from service.index.rows.checksums import Part

# ids and versions that a reader of all matching documents has in memory at once
BATCH = 4096


@dataclass(slots=True)
class Many:
    """Documents of some ids.

    Attributes:
        documents: with text, or None if the caller did not ask for texts, in the order of the ids.
        missing: ids of no document.
        damaged: ids of documents that do not match their checksums.
        remaining: ids of documents for which the answer has no room.
    """

    documents: list[tuple[Head, str | None]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)


async def get(
    index: Index,
    ids: Sequence[str],
    texts: bool,
    most: int = PAGE_BYTES,
    reserve: Callable[[int], None] = lambda _: None,
) -> Many:
    """Documents of some ids.

    Args:
        index: that holds them.
        ids: each occurs once.
        texts: whether to read their texts.
        most: characters of all titles, metadata and texts; a single document may exceed it.
        reserve: called with the characters of the texts before it reads them.
    """
    lengths = await _lengths(index, ids, texts)
    wanted = [name for name in ids if name in lengths]
    part = await listing.fitting(index, wanted, most, lengths)
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


async def seen(index: Index, ids: Sequence[str]) -> dict[str, int]:
    """Versions of the documents that the index has, by id."""
    held = await index.standing(ids)
    return {name: one.updated for name, one in held.items() if not one.deleted}


async def matching(index: Index, where: Where) -> AsyncIterator[dict[str, int]]:
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


async def count(index: Index, where: Where) -> int:
    """How many documents pass a filter."""
    return int(await index.table.count_rows(live(where).sql))


async def _lengths(index: Index, ids: Sequence[str], texts: bool) -> dict[str, int]:
    """Characters of the texts of the documents that the index has, by id; 0 without texts."""
    found = await index.select(named(ids), sizes.COLUMNS if texts else ["id"], len(ids))
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
