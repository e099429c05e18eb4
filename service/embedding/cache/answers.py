"""Whole answers for requests that repeat byte by byte."""

import hashlib
from dataclasses import dataclass

from cachetools import LRUCache
from starlette.types import Message

# bytes that an entry takes besides the body: its key, the headers and their tuples
_OVERHEAD = 1650


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a route.

    Attributes:
        start: ASGI message ``http.response.start``.
        usage: counts of the request.
    """

    start: Message
    body: bytes
    usage: dict[str, int]


class Answers:
    """Least-recently-used answers with a limit in bytes; for one event loop.

    Args:
        capacity: most bytes to keep; 0 keeps nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._most = capacity // 16
        self._answers = LRUCache[bytes, Answer](capacity, _size)

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def held_bytes(self) -> int:
        """Bytes that the kept answers take, entries included."""
        return int(self._answers.currsize)

    @staticmethod
    def key(*parts: bytes) -> bytes:
        """A 16-byte digest of everything that decides an answer."""
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.digest()

    def get(self, key: bytes) -> Answer | None:
        """The answer, or None if it is not kept."""
        return self._answers.get(key)

    def put(self, key: bytes, answer: Answer) -> None:
        """Keep an answer, unless it takes more than a sixteenth of the capacity."""
        if key not in self._answers and _size(answer) <= self._most:
            self._answers[key] = answer


def _size(answer: Answer) -> int:
    return len(answer.body) + _OVERHEAD
