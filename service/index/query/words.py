"""The words of a text that a full-text search asks for: those that tell it from other documents."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service import executors

if TYPE_CHECKING:
    from service.index.documents import Index

_WORD = re.compile(r"\w{2,}")
# docs/experiments.md, "Which words of a document to search for"
MOST_WORDS = 128
SAMPLE = 512
SAMPLE_CHARACTERS = 20_000
# of a process's time, at most, that goes into counting words of an index that is written to
_EFFORT = 0.03
# counting anew takes so little that a search may wait for it
_SHORT_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Frequencies:
    """In how many of some documents each word stands."""

    documents: int
    containing: Counter[str]

    def telling(self, text: str, most: int = MOST_WORDS) -> str:
        """The words of the highest tf·idf, once each; stop words and stemming are Lance's.

        idf is BM25's: log(1 + (N - df + .5) / (df + .5)).
        """

        def weight(word: str, count: int) -> float:
            held = self.containing[word]
            return count * math.log(1 + (self.documents - held + 0.5) / (held + 0.5))

        counts = Counter(words(text))
        ranked = sorted(counts, key=lambda word: weight(word, counts[word]), reverse=True)
        return " ".join(ranked[:most])


def words(text: str) -> list[str]:
    """All words of two or more characters, in lower case."""
    return _WORD.findall(text.lower())


def count(texts: Sequence[str]) -> Frequencies:
    """Document frequencies, each document read as far as ``SAMPLE_CHARACTERS``."""
    containing: Counter[str] = Counter()
    for text in texts:
        containing.update(set(words(text[:SAMPLE_CHARACTERS])))
    # most words stand in one document: they weigh nearly what an unknown one does
    several = Counter({word: n for word, n in containing.items() if n > 1})
    return Frequencies(len(texts), several)


class Vocabulary:
    """Document frequencies of one index, from a sample of it, counted anew as it changes."""

    def __init__(self) -> None:
        self._known: Frequencies | None = None
        self._version = -1
        self._counted = 0.0
        self._seconds = 0.0
        self._counting = asyncio.Lock()
        self._task: asyncio.Task[Frequencies] | None = None

    async def frequencies(self, index: Index) -> Frequencies:
        """As the index is now; where counting takes long, as it was a while ago."""
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
                texts = await index.sample(SAMPLE)
                self._known = await executors.STORE.run(count, texts)
                self._version = version
                self._counted = time.monotonic()
                self._seconds = self._counted - started
            return self._known
