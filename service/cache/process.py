"""The first layer: this process's memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from service.documents.pooling import Vectors

# bytes that a dict entry, its key and an array header take besides the vector
_OVERHEAD = 300


class ProcessCache:
    """Least-recently-used vectors, bounded in bytes; safe to call from several threads.

    Args:
        capacity: bytes to hold at most; 0 holds nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._vectors: OrderedDict[bytes, Vectors] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._vectors)

    def get(self, keys: Sequence[bytes]) -> list[Vectors | None]:
        """The vectors, None where one is not held."""
        with self._lock:
            found = [self._vectors.get(key) for key in keys]
            for key, vector in zip(keys, found, strict=True):
                if vector is not None:
                    self._vectors.move_to_end(key)
        return found

    def put(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Hold ``vectors`` ``[keys, dimensions]``; the least recently used make room."""
        with self._lock:
            for key, vector in zip(keys, vectors, strict=True):
                if key in self._vectors:
                    continue
                # a copy, since a row would keep the whole batch alive
                self._vectors[key] = np.array(vector)
                self.bytes += vector.nbytes + _OVERHEAD
            while self.bytes > self._capacity and self._vectors:
                _, old = self._vectors.popitem(last=False)
                self.bytes -= old.nbytes + _OVERHEAD
