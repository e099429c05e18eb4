"""The words of a query: how rare they are in an index, and how well documents match them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from numpy.typing import NDArray

from docsplit.ranking.terms import SAMPLE, Bag, Frequencies, bag, cosines, count
from service import executors
from service.index.documents import Index
from service.index.rows import checksums, derived
from service.index.rows.checksums import Part
from service.index.rows.schema import indexed

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
        made = await executors.STORE.run(_made_bags, read)
        held |= {name: own for name, (_, own) in made.items()}
        computed.update(made.values())
    return [held.get(name, b"") for name in found]


async def stored(index: Index, rows: Sequence[int]) -> dict[str, Bag]:
    """The stored words of documents by id; leaves out missing and damaged ones."""
    if not rows or derived.TERMS not in index.schema.names:
        return {}
    query = index.table.take_row_ids(list(rows)).select(["id", "digest", derived.TERMS])
    read = await query.to_arrow()
    columns = (checksums.texts(read["id"]), checksums.texts(read["digest"]))
    values = list(zip(*columns, read[derived.TERMS].to_pylist(), strict=True))
    return await executors.STORE.run(_opened_bags, values)


def _opened_bags(rows: Sequence[tuple[str, str, bytes | None]]) -> dict[str, Bag]:
    bags = {name: derived.opened_terms(value, digest) for name, digest, value in rows}
    return {name: own for name, own in bags.items() if own is not None}


def _made_bags(read: pa.Table) -> dict[str, tuple[str, Bag]]:
    rows = zip(*(checksums.texts(read[name]) for name in ("id", "digest", "text")), strict=True)
    return {name: (digest, bag(text[:CHARACTERS])) for name, digest, text in rows}


# number of those without stored terms, and of characters of each
SAMPLE_TEXTS = 512
SAMPLE_CHARACTERS = 20_000
_COMPUTED_BYTES = 16 * 2**20

# limit of the share of a process's time for counting the words of a changing index
_EFFORT = 0.03
# a search may wait for a count of up to this time
_SHORT_SECONDS = 0.05


class Vocabulary:
    """Document frequencies of one index, from a sample that is drawn again after changes.

    Attributes:
        computed: terms of documents whose row has none, by the value of their column ``digest``.
    """

    def __init__(self) -> None:
        self.computed: LRUCache[str, Bag] = LRUCache(_COMPUTED_BYTES, lambda own: len(own) + 256)
        self._filled = False
        self._known: Frequencies | None = None
        self._version = -1
        self._counted = 0.0
        self._seconds = 0.0
        self._counting = asyncio.Lock()
        self._task: asyncio.Task[Frequencies] | None = None

    async def frequencies(self, index: Index) -> Frequencies:
        """The current frequencies; former ones if counting takes long."""
        version = await index.table.version()
        if self._known is None or self._seconds < _SHORT_SECONDS:
            return await self._count(index, version)
        rested = time.monotonic() - self._counted > self._seconds / _EFFORT
        if version != self._version and rested and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._count(index, version))
        return self._known

    async def column(self, index: Index) -> str:
        """The column that searches by words read: that of the texts until all words are stored."""
        if not self._filled:
            held = await indexed(index.table)
            if "text" in held and derived.WORDS not in held:
                return "text"
            self._filled = derived.WORDS in held
        return derived.WORDS

    async def _count(self, index: Index, version: int) -> Frequencies:
        async with self._counting:
            if self._known is None or version > self._version:
                started = time.monotonic()
                bags = await sample(index)
                self._known = await executors.STORE.run(count, bags)
                self._version = version
                self._counted = time.monotonic()
                self._seconds = self._counted - started
            return self._known


async def sample(index: Index) -> list[Bag]:
    """The words of a random sample of the documents, the same one for all replicas."""
    sampled = await index.sample(SAMPLE)
    rows = sampled["_rowid"].to_pylist()
    bags: list[Bag] = []
    if derived.TERMS in index.schema.names and rows:
        stored = await index.table.take_row_ids(rows).select(["digest", derived.TERMS]).to_arrow()
        bags = await executors.STORE.run(_opened, stored)
    if len(bags) < min(len(rows), SAMPLE_TEXTS):
        bags = []
        async for read in index.contents(sampled["id"].to_pylist()[:SAMPLE_TEXTS], Part.TEXT):
            bags += await executors.STORE.run(_made, read)
    return bags


def _opened(stored: pa.Table) -> list[Bag]:
    pairs = zip(stored[derived.TERMS].to_pylist(), checksums.texts(stored["digest"]), strict=True)
    found = (derived.opened_terms(value, digest) for value, digest in pairs)
    return [one for one in found if one is not None]


def _made(stored: pa.Table) -> list[Bag]:
    return [bag(text[:SAMPLE_CHARACTERS]) for text in checksums.texts(stored["text"])]
