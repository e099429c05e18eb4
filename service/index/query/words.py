"""Counts how many documents of an index contain each word; counts again after changes."""

from __future__ import annotations

import asyncio
import time

from lancedb.expr import col, lit

from ranking.terms import SAMPLE, Frequencies, count
from service import executors
from service.index.documents import LIVE, Index

# limit of the share of a process's time for counting the words of a changing index
_EFFORT = 0.03
# a search may wait for a count of up to this time
_SHORT_SECONDS = 0.05


class Vocabulary:
    """Document frequencies of one index, from a sample that is drawn again after changes."""

    def __init__(self) -> None:
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

    async def _count(self, index: Index, version: int) -> Frequencies:
        async with self._counting:
            if self._known is None or version > self._version:
                started = time.monotonic()
                texts = await sample(index, SAMPLE)
                self._known = await executors.STORE.run(count, texts)
                self._version = version
                self._counted = time.monotonic()
                self._seconds = self._counted - started
            return self._known


async def sample(index: Index, size: int) -> list[str]:
    """Texts of the documents with the lowest digests, so that all replicas draw the same sample."""
    found = await index.table.query().where(LIVE).select(["id", "digest"]).to_arrow()
    ids = found.sort_by("digest").slice(0, size)["id"].to_pylist()
    held = await index.select(col("id").isin([lit(i) for i in ids]), ["text"], size)
    texts: list[str] = held["text"].to_pylist()
    return texts
