"""Values in memory, bounded in bytes; the least recently used make room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LeastRecentlyUsed(Generic[Value]):
    """A bounded mapping; not safe to call from several threads.

    Args:
        capacity: bytes to hold at most; 0 holds nothing.
        size: bytes that a value is counted as.
    """

    def __init__(self, capacity: int, size: Callable[[Value], int]) -> None:
        self._capacity = capacity
        self._size = size
        self._values: OrderedDict[bytes, Value] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def get(self, key: bytes) -> Value | None:
        """The value, if it is held."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: bytes, value: Value) -> None:
        """Hold a value; a former one under the same key goes."""
        former = self._values.pop(key, None)
        if former is not None:
            self.held_bytes -= self._size(former)
        self._values[key] = value
        self.held_bytes += self._size(value)
        while self.held_bytes > self._capacity and self._values:
            _, old = self._values.popitem(last=False)
            self.held_bytes -= self._size(old)
