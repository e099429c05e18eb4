"""A shuffled order of any length that is computed, not stored."""

from __future__ import annotations

import hashlib

_ROUNDS = 4


class Permutation:
    """A seeded bijection of ``range(size)`` onto itself in constant memory.

    A balanced Feistel network over the next even power of two, walked along its cycles until it
    lands inside the range (Black and Rogaway 2002, "Ciphers with arbitrary finite domains",
    section 4). Any position can be asked for on its own, so a run resumes at the place where it
    stopped.
    """

    def __init__(self, size: int, seed: str) -> None:
        """Permute ``range(size)`` as ``seed`` says."""
        self._size = size
        self._half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        digest = hashlib.sha256(seed.encode()).digest()
        self._keys = [int.from_bytes(digest[8 * i : 8 * i + 8]) for i in range(_ROUNDS)]

    def __len__(self) -> int:
        """Number of positions."""
        return self._size

    def __getitem__(self, position: int) -> int:
        """The index that stands at ``position``."""
        if not 0 <= position < self._size:
            raise IndexError(position)
        value = self._encrypt(position)
        while value >= self._size:
            value = self._encrypt(value)
        return value

    def _encrypt(self, value: int) -> int:
        left, right = value >> self._half, value & self._mask
        for key in self._keys:
            left, right = right, left ^ (self._mix(right, key) & self._mask)
        return left << self._half | right

    @staticmethod
    def _mix(value: int, key: int) -> int:
        """The finaliser of SplitMix64."""
        word = (value + key) & 0xFFFFFFFFFFFFFFFF
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return word ^ (word >> 31)
