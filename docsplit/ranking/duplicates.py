"""Near-duplicates: documents that share most of their words and pairs of adjacent words.

A document is a set of shingles. MinHash (Broder 1997, "On the resemblance and containment of
documents") estimates how much two sets share. Its bands (Leskovec et al., "Mining of Massive
Datasets", section 3.4) give the candidates, and the sets themselves confirm them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from docsplit.ranking.words import hashes, pairs_of, words

# a set that shares half of its shingles with another has one of its bands with probability .986
BANDS = 32
_ROWS = 3
HASHES = BANDS * _ROWS
_random = np.random.default_rng(0)
# multiply-shift hashing (Dietzfelbinger et al. 1997), modulo 2^64
_FACTORS, _SHIFTS = (
    _random.integers(0, 1 << 64, (HASHES, 1), dtype=np.uint64) | np.uint64(1) for _ in range(2)
)
# shingles that one step hashes: 96 hashes of each, of eight bytes
_HASHED = 4096

Shingles = NDArray[np.uint32]
Keys = NDArray[np.uint32]


def shingles(text: str) -> Shingles:
    """Hashes of the distinct words and pairs of adjacent words, ascending.

    A text without words has none.
    """
    own = hashes(words(text))
    return np.unique(np.concatenate((own, pairs_of(own))))


def resemblance(one: Shingles, other: Shingles) -> float:
    """The share of the shingles of either document that both have: 1 for the same text."""
    shared = _shared(one, other)
    return shared / max(len(one) + len(other) - shared, 1)


def containment(one: Shingles, other: Shingles) -> float:
    """The share of the shorter document's shingles that the other has: 1 for an excerpt."""
    return _shared(one, other) / max(min(len(one), len(other)), 1)


def _shared(one: Shingles, other: Shingles) -> int:
    return len(np.intersect1d(one, other, assume_unique=True))


def minhash(document: Shingles) -> Keys:
    """The least of each hash function's values, uint32 ``[HASHES]``.

    Two sets agree at a share of positions whose expectation is their resemblance.
    """
    least = np.full(HASHES, np.iinfo(np.uint32).max, dtype=np.uint64)
    for at in range(0, len(document), _HASHED):
        part = document[at : at + _HASHED].astype(np.uint64)
        np.minimum(least, ((_FACTORS * part + _SHIFTS) >> np.uint64(32)).min(axis=1), out=least)
    return least.astype(np.uint32)


def keys(document: Shingles) -> Keys:
    """Keys of the bands, uint32 ``[BANDS]``: similar documents have some in common."""
    # of eight bytes, as stored indexes have them
    least = minhash(document).astype(np.uint64)
    if not len(document):
        least[:] = np.iinfo(np.uint64).max
    return np.array(
        [zlib.crc32(band.tobytes()) for band in least.reshape(BANDS, _ROWS)], dtype=np.uint32
    )


def pairs(keys: Keys) -> NDArray[np.int64]:
    """Candidates: neighbours among the documents with a key in common.

    Args:
        keys: uint32 ``[documents, BANDS]``.

    Returns:
        Unique pairs ``[pairs, 2]`` in ascending order, at most ``BANDS`` of them a document.
    """
    found = []
    for band in keys.T:
        order = np.argsort(band, kind="stable")
        same = band[order[1:]] == band[order[:-1]]
        found.append(np.stack((order[:-1][same], order[1:][same]), axis=1))
    return np.unique(np.concatenate(found), axis=0)


def groups(documents: int, pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Connected documents; documents without a pair are in no group.

    Returns:
        The members of each group in ascending order, groups in the order of their first member.
    """
    if not pairs:
        return []
    rows, columns = np.array(pairs).T
    links = coo_array((np.ones(len(pairs)), (rows, columns)), shape=(documents, documents))
    _, labels = connected_components(links, directed=False)
    members: dict[int, list[int]] = {}
    for document in np.unique(np.concatenate((rows, columns))):
        members.setdefault(int(labels[document]), []).append(int(document))
    return list(members.values())
