"""Reads examples, and documents without labels, from an index."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from docsplit.heads.examples import MOST_UNLABELLED
from docsplit.windowing.pooling import Vectors
from service.errors import DamagedError, InvalidError
from service.index import documents as sizes
from service.index import documents as stored
from service.index.documents import Index
from service.index.rows import checksums
from service.index.rows.checksums import Part
from service.index.rows.vectors import vector_matrix

# ids in one query
CHUNK = 500
# characters of texts that are read at once, unless a single text has more
READ_CHARACTERS = 4_000_000
# limit of all texts that are stored with a classifier
MOST_CHARACTERS = 64_000_000


async def documents(
    index: Index,
    ids: Sequence[str],
    most: int = MOST_CHARACTERS,
    reserve: Callable[[int], None] = lambda _: None,
) -> tuple[list[str], Vectors]:
    """Texts of documents and their unit vectors, float32 ``[ids, dimensions]``.

    Args:
        ids: each once.
        most: characters of all texts.
        reserve: called with the characters of some texts, before they are read.

    Raises:
        InvalidError: some are not in the index, or the texts are too large to store.
        DamagedError: a stored document does not match its checksums.
    """
    held, texts, vectors = await existing(index, ids, most, reserve)
    if len(held) < len(ids):
        known = {*held}
        first = next(place for place, name in enumerate(ids) if name not in known)
        raise InvalidError(
            f"ids: {len(ids) - len(held)} of {len(ids)} are not in the index, the first at "
            f"position {first}",
            "ids",
        )
    return texts, vectors


async def existing(
    index: Index,
    ids: Sequence[str],
    most: int = MOST_CHARACTERS,
    reserve: Callable[[int], None] = lambda _: None,
) -> tuple[list[str], list[str], Vectors]:
    """Ids, texts and unit vectors of those documents that the index has, in the order of the ids.

    It leaves out a document that is deleted during the read. For the arguments and further errors
    see ``documents``.
    """
    names: list[str] = []
    texts: list[str] = []
    vectors = [np.zeros((0, index.schema.field("vector").type.list_size), dtype=np.float32)]
    size = 0
    for first in range(0, len(ids), CHUNK):
        chunk = ids[first : first + CHUNK]
        found = await named(index, chunk, [*checksums.columns(Part.VECTOR), "window_ends"])
        if (await index.sound(found, Part.VECTOR)).num_rows < found.num_rows:
            raise DamagedError
        rows = {name: row for row, name in enumerate(found["id"].to_pylist())}
        lengths = sizes.characters(found)
        more = sum(lengths.values())
        size += more
        if size > most:
            raise InvalidError(
                f"ids: their texts, which are stored with the classifier, hold more than "
                f"{MOST_CHARACTERS} characters: give fewer",
                "ids",
            )
        reserve(more)
        held = {name: text async for name, text in read(index, lengths, strict=True)}
        order = [name for name in chunk if name in held]
        names += order
        texts += [held[name] for name in order]
        if order:
            vectors.append(vector_matrix(found)[[rows[name] for name in order]])
    return names, texts, np.concatenate(vectors)


async def present(index: Index, ids: Sequence[str]) -> list[str]:
    """Those of the ids that the index has, in their order."""
    found: set[str] = set()
    for first in range(0, len(ids), CHUNK):
        found.update((await named(index, ids[first : first + CHUNK], ["id"]))["id"].to_pylist())
    return [name for name in ids if name in found]


async def named(index: Index, ids: Sequence[str], columns: list[str]) -> pa.Table:
    """Columns of the documents of these ids that exist, in no order."""
    return await index.select(stored.named(ids), columns, len(ids))


async def read(
    index: Index, lengths: Mapping[str, int], *, strict: bool = False
) -> AsyncIterator[tuple[str, str]]:
    """Yield ids and texts of documents, a few at once to save memory.

    Args:
        lengths: of the texts, by id.
        strict: raise DamagedError if a text does not match its checksum; else leave it out.
    """
    for group in sizes.groups_by_size(lengths, READ_CHARACTERS):
        async with sizes.turn_of_size(sum(lengths[name] for name in group)):
            read = await named(index, group, checksums.columns(Part.TEXT))
            found = await index.sound(read, Part.TEXT)
            if strict and found.num_rows < read.num_rows:
                raise DamagedError
            texts = zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True)
            for name, text in texts:
                yield name, text


async def unlabelled(index: Index) -> Vectors:
    """Unit vectors of a sample of an index's documents; always the same sample.

    Raises:
        InvalidError: the index is empty.
    """
    sampled = await index.sample(MOST_UNLABELLED)
    if rows := sampled["_rowid"].to_pylist():
        taken = index.table.take_row_ids(rows).select(checksums.columns(Part.VECTOR))
        held = vector_matrix(await index.sound(await taken.to_arrow(), Part.VECTOR))
        if len(held):
            return held
    raise InvalidError("unlabelled: that index holds no documents", "unlabelled")
