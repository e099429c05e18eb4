"""The top terms of a text: the words that distinguish it from other documents."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranking.bags import BUCKETS, Bag, buckets
from ranking.words import hashes, words

# docs/explanation/experiments/search.md, "Which words of a document to search for"
MOST_WORDS = 128
# documents whose words are counted
SAMPLE = 2048
# words of a search for candidates in an index of so many documents, because its time grows
# with both; docs/explanation/experiments/search.md, "How many words find the candidates?"
DEEP_WORDS = 48


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How rare words and pairs of words are.

    Attributes:
        documents: the number of documents that were counted.
        idf: of each bucket, float32 ``[BUCKETS]``: BM25's log(1 + (N - df + .5) / (df + .5)).
        weights: for ``bags.cosines``: the fourth power of ``idf``.
    """

    documents: int
    idf: NDArray[np.float32]
    weights: NDArray[np.float32]

    def top_terms(self, text: str, most: int = MOST_WORDS) -> str:
        """The words of the highest tf·idf, once each."""
        counts = Counter(words(text))
        names = list(counts)
        weights = np.fromiter(counts.values(), np.float32) * self.of_words(names)
        return " ".join(names[place] for place in np.argsort(-weights, kind="stable")[:most])

    def deep_terms(self, text: str) -> str:
        """The top terms of a search for candidates that are then compared word by word."""
        return self.top_terms(text, DEEP_WORDS if self.documents >= SAMPLE else MOST_WORDS)

    def of_words(self, words: Sequence[str]) -> NDArray[np.float32]:
        """The idf of each word."""
        return self.idf[hashes(words) % BUCKETS]


def count(documents: Iterable[Bag]) -> Frequencies:
    """The frequencies of the features of some documents."""
    containing = np.zeros(BUCKETS, dtype=np.int64)
    number = 0
    for document in documents:
        containing[buckets(document)] += 1
        number += 1
    idf = np.log1p((number - containing + 0.5) / (containing + 0.5)).astype(np.float32)
    return Frequencies(number, idf, idf**4)
