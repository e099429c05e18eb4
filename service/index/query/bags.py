"""Compares the words of a query with those of found documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from docsplit.ranking.terms import Bag, bag, cosines
from service import executors
from service.index.documents import Index
from service.index.rows import checksums, terms
from service.index.rows.checksums import Part

# documents without stored terms whose text one search reads, and characters of each
LACKING = 100
CHARACTERS = 50_000
# documents compared at a time
COMPARED = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """A document as a search found it.

    Attributes:
        row: position in the table at the time of the search.
        digest: value of the column ``digest``.
        words: those stored; None if they are missing, damaged or not read.
    """

    row: int
    digest: str
    words: Bag | None = None


async def similarities(index: Index, asked: Bag, found: Mapping[str, Found]) -> NDArray[np.float64]:
    """The cosine between the words of a query and those of each document, 0 to 1.

    A document without stored terms is compared by its text. If there are more than ``LACKING`` of
    them in ``COMPARED``, the others count as different in every word; later searches reach them.

    Args:
        index: contains the documents.
        asked: the words of the query.
        found: documents by id, the most promising ones first.
    """
    frequencies = await index.vocabulary.frequencies(index)
    rest, scores = iter(found.items()), [np.zeros(0)]
    while part := dict(islice(rest, COMPARED)):
        bags = await _bags(index, part)
        scores.append(await executors.STORE.run(cosines, asked, bags, frequencies.weights))
    return np.concatenate(scores)


async def _bags(index: Index, found: Mapping[str, Found]) -> list[Bag]:
    """The words of each document; none for documents beyond the first ``LACKING`` without terms."""
    computed = index.vocabulary.computed
    held = {name: one.words for name, one in found.items() if one.words is not None}
    unread = {name: one for name, one in found.items() if name not in held}
    held |= {n: computed[one.digest] for n, one in unread.items() if one.digest in computed}
    held |= await stored(index, [one.row for name, one in unread.items() if name not in held])
    lacking = [name for name in found if name not in held][:LACKING]
    async for read in index.contents(lacking, Part.TEXT):
        made = await executors.STORE.run(_made, read)
        held |= {name: own for name, (_, own) in made.items()}
        computed.update(made.values())
    return [held.get(name, b"") for name in found]


async def stored(index: Index, rows: Sequence[int]) -> dict[str, Bag]:
    """The stored words of documents by id; leaves out missing and damaged ones."""
    if not rows or terms.COLUMN not in index.schema.names:
        return {}
    query = index.table.take_row_ids(list(rows)).select(["id", "digest", terms.COLUMN])
    read = await query.to_arrow()
    columns = (checksums.texts(read["id"]), checksums.texts(read["digest"]))
    values = list(zip(*columns, read[terms.COLUMN].to_pylist(), strict=True))
    return await executors.STORE.run(_opened, values)


def _opened(rows: Sequence[tuple[str, str, bytes | None]]) -> dict[str, Bag]:
    bags = {name: terms.opened(value, digest) for name, digest, value in rows}
    return {name: own for name, own in bags.items() if own is not None}


def _made(read: pa.Table) -> dict[str, tuple[str, Bag]]:
    rows = zip(*(checksums.texts(read[name]) for name in ("id", "digest", "text")), strict=True)
    return {name: (digest, bag(text[:CHARACTERS])) for name, digest, text in rows}
