"""Counts how many documents of an index contain each word; counts again after changes."""

from __future__ import annotations

import asyncio
import time

import pyarrow as pa
from cachetools import LRUCache

from docsplit.ranking.terms import SAMPLE, Bag, Frequencies, bag, count
from service import executors
from service.index.documents import Index
from service.index.rows import checksums, terms
from service.index.rows.checksums import Part
from service.index.rows.columns import indexed

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
            if "text" in held and terms.WORDS not in held:
                return "text"
            self._filled = terms.WORDS in held
        return terms.WORDS

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
    if terms.COLUMN in index.schema.names and rows:
        stored = await index.table.take_row_ids(rows).select(["digest", terms.COLUMN]).to_arrow()
        bags = await executors.STORE.run(_opened, stored)
    if len(bags) < min(len(rows), SAMPLE_TEXTS):
        bags = []
        async for read in index.contents(sampled["id"].to_pylist()[:SAMPLE_TEXTS], Part.TEXT):
            bags += await executors.STORE.run(_made, read)
    return bags


def _opened(stored: pa.Table) -> list[Bag]:
    pairs = zip(stored[terms.COLUMN].to_pylist(), checksums.texts(stored["digest"]), strict=True)
    found = (terms.opened(value, digest) for value, digest in pairs)
    return [one for one in found if one is not None]


def _made(stored: pa.Table) -> list[Bag]:
    return [bag(text[:SAMPLE_CHARACTERS]) for text in checksums.texts(stored["text"])]
