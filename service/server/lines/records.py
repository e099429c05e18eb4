"""From a file of JSON lines to blocks of texts, as it arrives."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any

import orjson

from service import executors, memory, precedence
from service.errors import InvalidError, ServiceError, TooLargeError
from service.index.rows.fields import ID_CHARACTERS, INT64, valid_id, valid_unicode
from service.server.bodies.fields import valid_text
from service.server.edge import structure
from service.server.edge.inflight import Body
from service.server.edge.large_bodies import parse
from service.server.lines.splitting import Splitter

if TYPE_CHECKING:
    from service.textfiles.blocks import Texts

# of an answer that comes before the whole body
CLOSE = {"connection": "close"}
# memory of a request besides that for its longest line: some blocks, and what arrives
MEMORY = 8 << 20
_FORM = 'send a JSON string, or an object {"id": "…", "text": "…"}, in UTF-8'

# id, text, and bytes of the line
Record = tuple[str | None, str, int]


class Records:
    """Reads the texts of a file.

    Args:
        room: memory of the request.
        most_bytes: of a line.
        most_values: JSON values in a line.
        most_total: bytes of all lines.
        unit: what a line is called.
    """

    def __init__(
        self, room: Body, most_bytes: int, most_values: int, most_total: int, unit: str = "line"
    ) -> None:
        self._room = room
        self._most_total = most_total
        self._unit = unit
        self._most_bytes = most_bytes
        self._most_values = most_values
        self._splitter = Splitter(self._check)
        self._lines = 0

    async def blocks(self, body: AsyncIterator[bytes]) -> AsyncGenerator[Texts, None]:
        """The texts in their order.

        Args:
            body: in pieces.

        Raises:
            InvalidError, TooLargeError: a line is no text; the message has its number.
        """
        from service.textfiles.blocks import BLOCK_BYTES, BLOCK_TEXTS, Texts

        ids: list[str | None] = []
        texts: list[str] = []
        size = 0
        async for given, text, length in self._records(body):
            if texts and (len(texts) == BLOCK_TEXTS or size + length > BLOCK_BYTES):
                yield Texts(ids, texts)
                ids, texts, size = [], [], 0
            ids.append(given)
            texts.append(text)
            size += length
        if texts:
            yield Texts(ids, texts)

    async def _records(self, body: AsyncIterator[bytes]) -> AsyncIterator[Record]:
        total = since = 0
        async for piece in body:
            total += len(piece)
            if total > self._most_total:
                raise TooLargeError(
                    f"the texts have more than {self._most_total} bytes, which is the limit "
                    "(max_upload_bytes): split the file",
                    headers=CLOSE,
                )
            if total - since > precedence.LARGE:
                since = total
                await precedence.pause()
            for line in self._splitter.feed(piece):
                yield await self._record(line)
        for line in self._splitter.end():
            yield await self._record(line)

    async def _record(self, line: bytes | ServiceError) -> Record:
        self._lines += 1
        if isinstance(line, ServiceError):
            raise line
        if len(line) > self._most_values and structure.marks(line) > self._most_values:
            self._count(line)
        try:
            if len(line) > precedence.LARGE:
                value = await executors.BODIES.run(parse, line)
            else:
                value = orjson.loads(line)
        except (ValueError, RecursionError):
            raise self._invalid(f"it is not valid JSON: {_FORM}") from None
        given, text = self._fields(value)
        return given, text, len(line)

    def _fields(self, value: Any) -> tuple[str | None, str]:
        given = None
        if isinstance(value, dict):
            if "text" not in value:
                raise self._invalid(f"it has no text: {_FORM}")
            given, value = value.get("id"), value["text"]
        if isinstance(given, int) and not isinstance(given, bool) and given in INT64:
            given = str(given)
        if given is not None and not _usable(given):
            raise self._invalid(
                f"its id must be an integer, or a string of 1 to {ID_CHARACTERS} characters, none "
                "of them a control character"
            )
        try:
            return given, valid_text(value)
        except ValueError as error:
            raise self._invalid(f"text: {error}") from None

    def _count(self, line: bytes) -> None:
        for found in structure.values(line):
            if found > self._most_values:
                raise TooLargeError(
                    f"{self._unit} {self._lines} holds more than {self._most_values} JSON values, "
                    "which is the limit (max_body_values): leave fields out",
                    headers=CLOSE,
                )

    def _check(self, size: int) -> None:
        """Raise if a line of this size has no room."""
        if size > self._most_bytes:
            raise TooLargeError(
                f"{self._unit} {self._lines + 1} has more than {self._most_bytes} bytes, which is "
                "the limit (max_body_bytes): split its text",
                code="line_too_large",
                headers=CLOSE,
            )
        if size > precedence.LARGE:
            self._room.reach(MEMORY + memory.needed(size, self._most_values))

    def _invalid(self, reason: str) -> InvalidError:
        return InvalidError(f"{self._unit} {self._lines}: {reason}", headers=CLOSE)


def _usable(given: Any) -> bool:
    return isinstance(given, str) and valid_id(given) and valid_unicode(given)
