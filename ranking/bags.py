"""Whole documents as bags of words and pairs of adjacent words, compared by their cosine.

A feature is a word or a pair. Features are hashed (Weinberger et al. 2009, "Feature Hashing for
Large Scale Multitask Learning"). The weight of a feature is ``(1 + log tf) * idf ** 2``. See
docs/explanation/experiments.md, "Words of whole documents".
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ranking.tokens import hashed

BUCKETS = 1 << 20
# the most frequent features of a document count
MOST_FEATURES = 5400
# bytes of a feature in ``packed``
WIDTH = 3
# counts are exact up to 8; a higher one becomes the next lower level
_LEVELS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 18, 25, 40, 70, 150, 400])
_TF = (1 + np.log(_LEVELS)).astype(np.float32)
_BITS = 4

Bag = NDArray[np.uint32]
"""Features by bucket, ascending; the last four bits are the level of the count."""


def bag(text: str) -> Bag:
    """The most frequent features of a text; of equally frequent ones words come before pairs."""
    words = hashed(text)
    pairs = words[:-1] * np.uint32(0x9E3779B1) ^ words[1:]
    kinds = [np.unique(part % BUCKETS, return_counts=True) for part in (words, pairs)]
    places = np.concatenate([buckets for buckets, _ in kinds])
    counts = np.concatenate([found for _, found in kinds])
    kept = np.argsort(-counts, kind="stable")[:MOST_FEATURES]
    buckets, inverse = np.unique(places[kept], return_inverse=True)
    sums = np.bincount(inverse, counts[kept], minlength=len(buckets))
    levels = np.searchsorted(_LEVELS, sums, side="right") - 1
    return (buckets << _BITS | levels).astype(np.uint32)


def buckets(features: Bag) -> NDArray[np.int32]:
    """The bucket of each feature."""
    return (features >> _BITS).astype(np.int32)


def packed(features: Bag) -> bytes:
    """``WIDTH`` bytes a feature."""
    return features.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :WIDTH].tobytes()


def unpacked(stored: bytes) -> Bag:
    """The features that ``packed`` stored.

    Raises:
        ValueError: the number of bytes is no multiple of ``WIDTH``.
    """
    narrow = np.frombuffer(stored, dtype=np.uint8).reshape(-1, WIDTH)
    wide = np.zeros((len(narrow), 4), dtype=np.uint8)
    wide[:, :WIDTH] = narrow
    return wide.view("<u4").ravel()


def cosines(query: Bag, documents: Sequence[Bag], idf: NDArray[np.float32]) -> NDArray[np.float64]:
    """The cosine of a document and others, 0 to 1.

    Args:
        query: of the document.
        documents: the others.
        idf: of each bucket, float32 ``[BUCKETS]``.
    """
    weights = idf**4
    asked = np.zeros(BUCKETS, dtype=np.float32)
    places = buckets(query)
    asked[places] = _TF[query & 15] * weights[places]
    ends = np.cumsum([0, *map(len, documents)])
    every = np.concatenate([np.zeros(0, dtype=np.uint32), *documents])
    rows = csr_array((_TF[every & 15], buckets(every), ends), shape=(len(documents), BUCKETS))
    own = np.sqrt(_TF[query & 15] @ asked[places])
    norms = np.sqrt(rows.power(2) @ weights).astype(np.float64) * own
    found = (rows @ asked).astype(np.float64)
    return np.clip(np.divide(found, norms, out=np.zeros_like(found), where=norms > 0), 0, 1)
