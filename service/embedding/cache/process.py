"""The first layer: the memory of this process."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cachetools import LRUCache

from docsplit.windowing.pooling import Vectors

# bytes that an entry, its key and an array header take besides the vector (measured)
_OVERHEAD = 450


@dataclass(frozen=True, slots=True)
class _Entry:
    vector: Vectors
    sure: bool


def _size(entry: _Entry) -> int:
    return entry.vector.nbytes + _OVERHEAD


class ProcessCache:
    """Least-recently-used vectors with a limit in bytes; thread-safe.

    Args:
        capacity: most bytes to keep; 0 keeps nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._entries = LRUCache[bytes, _Entry](capacity, _size)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        """Bytes that the kept vectors take, entries included."""
        return int(self._entries.currsize)

    def get(self, keys: Sequence[bytes], *, sure: bool = False) -> list[Vectors | None]:
        """The vectors; None for each that is not kept.

        Args:
            sure: whether to leave out entries that are not sure.
        """
        with self._lock:
            found = [self._entries.get(key) for key in keys]
        return [
            None if entry is None or (sure and not entry.sure) else entry.vector for entry in found
        ]

    def put(self, keys: Sequence[bytes], vectors: Vectors, *, sure: bool = True) -> None:
        """Keep ``vectors`` ``[keys, dimensions]``; evict the least recently used.

        Args:
            sure: whether they were computed here, or by a process that proved to have the secret.
        """
        with self._lock:
            for key, vector in zip(keys, vectors, strict=True):
                held = self._entries.get(key)
                if held is None or (sure and not held.sure):
                    # a copy, because a view would keep the whole batch alive
                    entry = _Entry(np.array(vector), sure)
                    if _size(entry) <= self._entries.maxsize:
                        self._entries[key] = entry
