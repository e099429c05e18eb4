"""Whole answers to requests that come again as they were, byte by byte."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from starlette.types import Message

# bytes that a dict entry, its key, the headers and their tuples take besides the body
_OVERHEAD = 1500


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
        self._capacity = capacity
        self._answers: OrderedDict[bytes, Answer] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

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
        answer = self._answers.get(key)
        if answer is not None:
            self._answers.move_to_end(key)
        return answer

    def put(self, key: bytes, answer: Answer) -> None:
        """Hold an answer, unless it takes more than a sixteenth of the room."""
        size = len(answer.body) + _OVERHEAD
        if key in self._answers or size > self._capacity // 16:
            return
        self._answers[key] = answer
        self.bytes += size
        while self.bytes > self._capacity:
            _, old = self._answers.popitem(last=False)
            self.bytes -= len(old.body) + _OVERHEAD
