"""The top terms of a text: the words that distinguish it from other documents."""

import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from docsplit.ranking.words import hashes, pairs_of, words

BUCKETS = 1 << 20
# one letter or digit: it and pairs of it say nothing of a whole document
SINGLE = hashes(string.ascii_lowercase + string.digits)
# the most frequent features of a document count
MOST_FEATURES = 5400
# bytes of a feature
WIDTH = 3
# counts are exact up to 8; a higher one becomes the next lower level
_LEVELS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 18, 25, 40, 70, 150, 400])
_TF = (1 + np.log(_LEVELS)).astype(np.float32)

Bag = bytes
"""Features in the order of their buckets.

The low 16 bits of all buckets come first, two bytes each, little-endian. One byte for each feature
follows: the high four bits of its bucket, then the level of its count.
"""


def bag(text: str) -> Bag:
    """The most frequent features of a text; of equally frequent ones words come before pairs."""
    own = hashes(words(text))
    pairs = pairs_of(own[~np.isin(own, SINGLE)])
    kinds = [np.unique(part % BUCKETS, return_counts=True) for part in (own, pairs)]
    places = np.concatenate([found for found, _ in kinds])
    counts = np.concatenate([found for _, found in kinds])
    kept = np.argsort(-counts, kind="stable")[:MOST_FEATURES]
    found, inverse = np.unique(places[kept], return_inverse=True)
    sums = np.bincount(inverse, counts[kept], minlength=len(found))
    levels = np.searchsorted(_LEVELS, sums, side="right") - 1
    high = (found >> 16 << 4) | levels
    return found.astype("<u2").tobytes() + high.astype(np.uint8).tobytes()


def buckets(own: Bag) -> NDArray[np.int32]:
    """The bucket of each feature."""
    found: NDArray[np.int32] = bag_rows([own]).indices
    return found


def cosines(
    query: Bag, documents: Sequence[Bag], weights: NDArray[np.float32]
) -> NDArray[np.float64]:
    """The cosine between a document and others, 0 to 1; 0 for an empty one.

    Args:
        query: of the document.
        documents: the others.
        weights: ``Frequencies.weights``.
    """
    asked, rows = bag_rows([query]), bag_rows(documents)
    own = (asked.power(2) @ weights)[0]
    asked.data *= weights[asked.indices]
    found = (rows @ asked.toarray()[0]).astype(np.float64)
    norms = np.sqrt(own * (rows.power(2) @ weights).astype(np.float64))
    shares: NDArray[np.float64] = np.zeros_like(found)
    np.divide(found, norms, out=shares, where=norms > 0)
    return shares.clip(0, 1)


def titles_in(
    titles: Sequence[str], document: Bag, idf: NDArray[np.float32]
) -> NDArray[np.float64]:
    """The share of the words of each title that a document contains, weighed by idf.

    Args:
        titles: NaN is the share of an empty one.
        document: that may contain them.
        idf: of each bucket.
    """
    contained = bag_rows([document]).toarray()[0] > 0
    held = [np.unique(hashes(words(title)) % BUCKETS) for title in titles]
    weights = [(idf[own].sum(dtype=np.float64), idf[own] @ contained[own]) for own in held]
    return np.array([part / whole if whole > 0 else np.nan for whole, part in weights])


def title_in(title: str, documents: Sequence[Bag], idf: NDArray[np.float32]) -> NDArray[np.float64]:
    """The share of the words of a title that each document contains; see ``titles_in``.

    It is NaN for an empty document.
    """
    own = np.unique(hashes(words(title)) % BUCKETS)
    weights = np.zeros(BUCKETS, dtype=np.float64)
    weights[own] = idf[own]
    whole = float(weights.sum())
    rows = bag_rows(documents)
    rows.data[:] = 1
    known = np.array([whole > 0 and len(own) > 0 for own in documents], dtype=np.bool_)
    return np.where(known, rows @ weights / max(whole, 1e-9), np.nan)


def bag_rows(bags: Sequence[Bag]) -> csr_array:
    """``1 + log tf`` of each feature, float32 ``[bags, BUCKETS]``."""
    sizes = [len(own) // WIDTH for own in bags]
    pairs = list(zip(bags, sizes, strict=True))
    low = np.frombuffer(b"".join(own[: 2 * size] for own, size in pairs), dtype="<u2")
    high = np.frombuffer(b"".join(own[2 * size :] for own, size in pairs), dtype=np.uint8)
    places = (high & 0xF0).astype(np.int32) << 12 | low
    ends = np.cumsum([0, *sizes], dtype=np.int32)
    return csr_array((_TF[high & 0xF], places, ends), shape=(len(bags), BUCKETS))


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
