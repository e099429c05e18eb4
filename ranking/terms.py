"""The top terms of a text: the words that distinguish it from other documents."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_WORD = re.compile(r"\w{2,}")
# docs/explanation/experiments.md, "Which words of a document to search for"
MOST_WORDS = 128
# number of counted documents, and of characters of each
SAMPLE = 512
SAMPLE_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class Frequencies:
    """The number of documents that contain each word."""

    documents: int
    containing: Counter[str]

    def top_terms(self, text: str, most: int = MOST_WORDS) -> str:
        """The words of the highest tf·idf, once each; stop words and stemming follow Lance.

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
    """Document frequencies; of each document only the first ``SAMPLE_CHARACTERS`` count."""
    containing: Counter[str] = Counter()
    for text in texts:
        containing.update(set(words(text[:SAMPLE_CHARACTERS])))
    # most words are in one document: they weigh nearly as much as an unknown word
    several = Counter({word: n for word, n in containing.items() if n > 1})
    return Frequencies(len(texts), several)
