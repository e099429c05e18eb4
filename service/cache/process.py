"""The first layer: this process's memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from service.cache.lru import LeastRecentlyUsed
from service.documents.pooling import Vectors

# bytes that a dict entry, its key and an array header take besides the vector
_OVERHEAD = 300


class ProcessCache:
    """Least-recently-used vectors, bounded in bytes; safe to call from several threads.

    Args:
        capacity: bytes to hold at most; 0 holds nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._vectors = LeastRecentlyUsed[Vectors](capacity, lambda v: v.nbytes + _OVERHEAD)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def held_bytes(self) -> int:
        """What is held, entries included."""
        return self._vectors.held_bytes

    def get(self, keys: Sequence[bytes]) -> list[Vectors | None]:
        """The vectors, None where one is not held."""
        with self._lock:
            return [self._vectors.get(key) for key in keys]

    def put(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Hold ``vectors`` ``[keys, dimensions]``; the least recently used make room."""
        with self._lock:
            for key, vector in zip(keys, vectors, strict=True):
                if key not in self._vectors:
                    # a copy, since a row would keep the whole batch alive
                    self._vectors.put(key, np.array(vector))
