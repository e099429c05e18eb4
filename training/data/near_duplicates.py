"""Near-duplicate removal by MinHash and locality-sensitive hashing, in bounded memory.

Two copies of a document in one batch would be negatives of each other. The build of the cache
writes signatures to disk. It then sorts one band after the other, one partition of the hash range
at a time. Memory thus depends on the size of a partition, not on the number of documents.
Broder (1997), "On the resemblance and containment of documents"; banding as in Leskovec, Rajaraman
and Ullman, "Mining of Massive Datasets", section 3.4.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rensa import RMinHash

PERMUTATIONS = 128
SHINGLE_WORDS = 5
_SEED = 1
_PARTITION_ROWS = 250_000
_READ_ROWS = 65_536

Signature = npt.NDArray[np.uint32]
Signatures = npt.NDArray[np.uint32]


def signature(text: str) -> Signature:
    """MinHash signature of the set of word 5-grams.

    Args:
        text: the document. Case and white space do not matter.

    Returns:
        uint32 ``[PERMUTATIONS]``. Two signatures agree at a share of positions whose expectation
        is the Jaccard similarity of the two sets.
    """
    words = text.lower().split()
    shingles = [
        " ".join(words[i : i + SHINGLE_WORDS])
        for i in range(max(1, len(words) - SHINGLE_WORDS + 1))
    ]
    sketch = RMinHash(num_perm=PERMUTATIONS, seed=_SEED)
    sketch.update(shingles)
    return np.asarray(sketch.digest(), dtype=np.uint32)


def bands_for(threshold: float) -> int:
    """Number of bands that finds a pair at ``threshold`` with a probability of at least .99.

    With ``b`` bands of ``r`` rows a pair of similarity ``s`` shares a bucket with probability
    ``1 - (1 - s^r)^b``. Fewer bands give fewer false candidates.
    """
    for bands in (1, 2, 4, 8, 16, 32, 64):
        if 1 - (1 - threshold ** (PERMUTATIONS // bands)) ** bands >= 0.99:
            return bands
    return PERMUTATIONS


def later_duplicates(
    signatures: Signatures, threshold: float, *, partition_rows: int = _PARTITION_ROWS
) -> npt.NDArray[np.bool_]:
    """Mark documents that are near-duplicates of an earlier one.

    Args:
        signatures: uint32 ``[documents, PERMUTATIONS]``, usually a memory map.
        threshold: estimated Jaccard similarity from which two documents count as duplicates.
        partition_rows: approximate number of documents of one band to sort in memory at once.

    Returns:
        bool ``[documents]``, true for documents to leave out. The first document of each group
        stays.
    """
    dropped = np.zeros(len(signatures), dtype=np.bool_)
    bands = bands_for(threshold)
    rows = PERMUTATIONS // bands
    partitions = max(1, -(-len(signatures) // partition_rows))
    for band in range(bands):
        columns = slice(band * rows, (band + 1) * rows)
        for partition in range(partitions):
            for bucket in _buckets(signatures, columns, partition, partitions):
                _mark(signatures, bucket, threshold, dropped)
    return dropped


def _buckets(
    signatures: Signatures, columns: slice, partition: int, partitions: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Ascending document numbers that share one band's hash, for one partition of the hashes."""
    keys, numbers = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for start in range(0, len(signatures), _READ_ROWS):
        key = _hash(signatures[start : start + _READ_ROWS, columns])
        inside = np.flatnonzero(key % np.uint64(partitions) == partition)
        keys.append(key[inside])
        numbers.append(inside + start)
    key, number = np.concatenate(keys), np.concatenate(numbers)
    order = np.argsort(key, kind="stable")
    key, number = key[order], number[order]
    edges = np.flatnonzero(np.diff(key)) + 1
    starts = np.concatenate([[0], edges])
    ends = np.concatenate([edges, [len(key)]])
    for shared in np.flatnonzero(ends - starts > 1):
        yield number[starts[shared] : ends[shared]]


def _hash(band: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """FNV-1a over the rows' values, uint64 ``[documents]``."""
    state = np.full(len(band), 14695981039346656037, dtype=np.uint64)
    for column in band.T:
        state = (state ^ column.astype(np.uint64)) * np.uint64(1099511628211)
    return state ^ (state >> np.uint64(32))


def _mark(
    signatures: Signatures,
    bucket: npt.NDArray[np.int64],
    threshold: float,
    dropped: npt.NDArray[np.bool_],
) -> None:
    rest = bucket[~dropped[bucket]]
    while len(rest) > 1:
        leader, others = rest[0], rest[1:]
        similar = np.empty(len(others), dtype=np.bool_)
        for start in range(0, len(others), _READ_ROWS):
            block = signatures[others[start : start + _READ_ROWS]]
            agreement = (block == signatures[leader]).mean(axis=1)
            similar[start : start + _READ_ROWS] = agreement >= threshold
        dropped[others[similar]] = True
        rest = others[~similar]


def load_signatures(path: Path) -> Signatures:
    """Map a file of signatures, uint32 ``[documents, PERMUTATIONS]``."""
    if path.stat().st_size == 0:
        return np.empty((0, PERMUTATIONS), dtype=np.uint32)
    return np.memmap(path, dtype=np.uint32, mode="r").reshape(-1, PERMUTATIONS)
