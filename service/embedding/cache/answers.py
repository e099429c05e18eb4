"""Whole answers to requests that come again as they were, byte by byte."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cachetools import LRUCache
from starlette.types import Message

# bytes that an entry, its key, the headers and their tuples take besides the body
_OVERHEAD = 1650


@dataclass(frozen=True, slots=True)
class Answer:
    """What a route sent.

    Attributes:
        start: ASGI message ``http.response.start``.
        body: of the answer.
        usage: what the request is counted as.
    """

    start: Message
    body: bytes
    usage: dict[str, int]


class Answers:
    """Least-recently-used answers, bounded in bytes; for one event loop.

    Args:
        capacity: bytes to hold at most; 0 holds nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._most = capacity // 16
        self._answers = LRUCache[bytes, Answer](capacity, _size)

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def held_bytes(self) -> int:
        """What is held, entries included."""
        return int(self._answers.currsize)

    @staticmethod
    def key(*parts: bytes) -> bytes:
        """A 16-byte digest of all that decides an answer."""
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.digest()

    def get(self, key: bytes) -> Answer | None:
        """The answer, if it is held."""
        return self._answers.get(key)

    def put(self, key: bytes, answer: Answer) -> None:
        """Hold an answer, unless it takes more than a sixteenth of the room."""
        if key not in self._answers and _size(answer) <= self._most:
            self._answers[key] = answer


def _size(answer: Answer) -> int:
    return len(answer.body) + _OVERHEAD
