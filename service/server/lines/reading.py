"""Batches of lines from a body, as they arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from starlette.types import Receive

from service import memory
from service.errors import ServiceError, SlowBodyError, TooLargeError, UnavailableError
from service.server.edge.bodies import BODY_RATE, LINES_MEMORY, Body
from service.server.lines.splitting import Splitter

# A batch ends at one of these. It is embedded like one request.
BATCH_LINES = 64
BATCH_CHARACTERS = 65_536
# Seconds without a byte after which the answers begin, because the client may wait for them.
PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """A text, or the error in its place.

    Attributes:
        index: position among all lines that are not blank.
    """

    index: int
    text: str | ServiceError

    @property
    def characters(self) -> int:
        """Length of the text."""
        return len(self.text) if isinstance(self.text, str) else 0


# an empty batch: nothing more has arrived yet
PAUSED: list[Line] = []


async def batched(lines: AsyncIterator[Line]) -> AsyncIterator[list[Line]]:
    """Lines in lists, none of which is empty."""
    batch: list[Line] = []
    characters = 0
    async for line in lines:
        batch.append(line)
        characters += len(line.text) if isinstance(line.text, str) else 0
        if len(batch) == BATCH_LINES or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class BodyLines:
    """The lines of a body.

    Args:
        receive: of ASGI; on a disconnect it never returns.
        read: makes the text of a line.
        room: memory of the request.
        most_bytes: of a line.
        seconds: in which the next line must arrive; every ``BODY_RATE`` bytes of it add one.
        stopping: whether the service is about to end.
    """

    def __init__(
        self,
        receive: Receive,
        read: Callable[[bytes], Coroutine[Any, Any, str]],
        room: Body,
        most_bytes: int,
        seconds: float,
        stopping: Callable[[], bool],
    ) -> None:
        self._receive = receive
        self._read = read
        self._room = room
        self._most = most_bytes
        self._seconds = seconds
        self._stopping = stopping
        self._splitter = Splitter(self._check)
        self._since = time.monotonic()
        self._next = 0

    def progress(self) -> None:
        """The client got an answer, or its lines were accepted: its time begins again."""
        self._since = time.monotonic()

    async def batches(self) -> AsyncIterator[list[Line]]:
        """Lines in batches, none later than its last line; an empty one while nothing arrives.

        Raises:
            SlowBodyError: no line arrived in time.
            UnavailableError: the service ends.
        """
        more = True
        while more:
            getter = asyncio.ensure_future(self._receive())
            try:
                while not (await asyncio.wait((getter,), timeout=PAUSE))[0]:
                    self._check_progress()
                    yield PAUSED
                message = getter.result()
            finally:
                getter.cancel()
            more = message.get("more_body", False)
            async for batch in batched(self._lines(message.get("body", b""), more)):
                yield batch
                self.progress()
            if more:
                self._check_progress()

    async def _lines(self, piece: bytes, more: bool) -> AsyncIterator[Line]:
        ended: Iterable[bytes] = () if more else self._splitter.end()
        for found in chain(self._splitter.feed(piece), ended):
            yield Line(self._next, await self._text(found))
            self._next += 1

    async def _text(self, found: bytes | ServiceError) -> str | ServiceError:
        if isinstance(found, ServiceError):
            return found
        try:
            return await self._read(found)
        except ServiceError as error:
            return error

    def _check(self, size: int) -> None:
        """Raise if a line of this size has no room."""
        if size > self._most:
            raise TooLargeError(
                f"the line has more than {self._most} bytes, which is the limit: split its text",
                code="line_too_large",
            )
        self._room.reach(LINES_MEMORY + memory.needed(size))

    def _check_progress(self) -> None:
        if self._stopping():
            raise UnavailableError(
                "the service is stopping: send the lines that have no answer again"
            )
        allowed = self._seconds + self._splitter.incomplete / BODY_RATE
        if time.monotonic() > self._since + allowed:
            raise SlowBodyError("the next line did not arrive in time")
