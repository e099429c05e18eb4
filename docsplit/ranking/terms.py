"""The top terms of a text: the words that distinguish it from other documents."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from docsplit.ranking.bags import BUCKETS, SINGLE, Bag, buckets
from docsplit.ranking.words import hashes, words

# docs/explanation/experiments/search.md, "Which words of a document to search for"
MOST_WORDS = 128
# a little more than the idf of a word in half of the documents
_RARE = 0.6932
# in fewer documents a word of half of them may still be what the query is about
_FEW = 20
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
        weights: for ``bags.cosines``: the fourth power of ``idf``, 0 for a single letter.
    """

    documents: int
    idf: NDArray[np.float32]
    weights: NDArray[np.float32]

    def top_terms(self, text: str, most: int = MOST_WORDS) -> str:
        """The words of the highest tf·idf, once each.

        It leaves out those that half of the documents have, if there are others.
        """
        found = self.of_text(text)
        return " ".join(islice(self.rare(found) or found, most))

    def rare(self, idf: Mapping[str, float]) -> dict[str, float]:
        """The words without those of half of the documents, if these are many."""
        least = _RARE if self.documents >= _FEW else 0.0
        return {word: weight for word, weight in idf.items() if weight > least}

    def of_text(self, text: str) -> dict[str, float]:
        """The idf of each word; the words of the highest tf·idf come first."""
        counts = Counter(words(text))
        names = list(counts)
        idf = self.idf[hashes(names) % BUCKETS]
        scores = np.fromiter(counts.values(), np.float32) * idf
        best = np.argsort(-scores, kind="stable").tolist()
        return {names[place]: float(idf[place]) for place in best}

    def deep_terms(self, text: str) -> str:
        """The top terms of a search for candidates that are then compared word by word."""
        return self.top_terms(text, DEEP_WORDS if self.documents >= SAMPLE else MOST_WORDS)


def count(documents: Iterable[Bag]) -> Frequencies:
    """The frequencies of the features of some documents."""
    containing = np.zeros(BUCKETS, dtype=np.int64)
    number = 0
    for document in documents:
        containing[buckets(document)] += 1
        number += 1
    idf = np.log1p((number - containing + 0.5) / (containing + 0.5)).astype(np.float32)
    weights = idf**4
    weights[SINGLE % BUCKETS] = 0
    return Frequencies(number, idf, weights)
