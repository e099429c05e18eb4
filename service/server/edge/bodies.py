"""Bodies and answers of requests: bounded in bytes, JSON values, time and memory.

The memory of a request is reserved from its head until its client has read the answer.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.types import Message, Receive, Scope

from service import memory, precedence
from service.embedding.batching import clients
from service.embedding.batching.clients import Quota
from service.errors import (
    MediaTypeError,
    OverloadedError,
    ServiceError,
    SlowBodyError,
    TooLargeError,
)
from service.server.bodies.large import marks, values

if TYPE_CHECKING:
    from service.settings import Settings

# bytes per second; a body must arrive at least this fast
BODY_RATE = 16_384
JSON_TYPES = {"application/json", "application/merge-patch+json"}
NDJSON = "application/x-ndjson"
# memory of a request by lines: texts in work, their vectors, and answers that wait
LINES_MEMORY = 8 << 20
# key in the scope: the memory of a request
ROOM = "docsplit.room"
_HINT = ": send fewer inputs a request"
_UPLOAD_HINT = " (max_upload_bytes): send fewer files a request"
# bytes of an upload that are in memory, before they are on disk
_UPLOAD_MEMORY = 4 << 20
# routes that read their bodies as they arrive: files, and lines of JSON
_UPLOADS = re.compile("/indexes/[^/]+/files|/read")
_BY_LINES = {"/embed"}


class FullError(OverloadedError):
    """There is no memory left for this client.

    Args:
        retry_after: estimated seconds until there is room.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(
            retry_after,
            "overloaded: the requests in progress of this client, or of all clients, leave no "
            "memory for this one; send less at a time, or try again",
        )


class Inflight(Quota):
    """Bytes of memory reserved for requests in progress."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._seconds = 0.0

    @contextmanager
    def body(self) -> Iterator[Body]:
        """Reserve memory for one request of the task's client, until the request ends."""
        body = Body(self, clients.current())
        try:
            yield body
        finally:
            body.release()

    def take(self, client: clients.Client, amount: int) -> None:
        """Raise ``FullError`` if there is no room for ``amount`` more bytes."""
        too_much = self.overflow(client, amount)
        if too_much > 0:
            # Little's law: bytes held / seconds held = bytes released per second
            wait = self._seconds * too_much / max(self.total, 1)
            raise FullError(max(1.0, min(wait, self._seconds)))
        self.add(client, amount)

    def give(self, client: clients.Client, amount: int, seconds: float) -> None:
        """Give back ``amount`` bytes that a request has held for ``seconds``."""
        self.add(client, -amount)
        self._seconds += 0.1 * (seconds - self._seconds) if self._seconds else seconds


class Body:
    """The memory of one request."""

    def __init__(self, inflight: Inflight, client: clients.Client) -> None:
        self.client = client
        self.bytes = 0
        self._inflight = inflight
        self._started = time.monotonic()

    def share(self, size: int) -> None:
        """Reserve ``size`` bytes in all, or half of the capacity if that is less.

        So the service can serve any request of a client that has no other one.

        Raises:
            FullError: there are not as many.
        """
        self.reach(min(size, self._inflight.capacity // 2))

    def reach(self, size: int) -> None:
        """Reserve ``size`` bytes in all; raise ``FullError`` if there are not as many."""
        if size > self.bytes:
            self._inflight.take(self.client, size - self.bytes)
            self.bytes = size

    def release(self) -> None:
        """Give back what the request has reserved."""
        if self.bytes:
            self._inflight.give(self.client, self.bytes, time.monotonic() - self._started)
            self.bytes = 0


def sends_lines(scope: Scope) -> bool:
    """Whether a request has a body of lines, and its route takes them."""
    if scope["path"] not in _BY_LINES or scope["method"] != "POST":
        return False
    return _media_type(dict(scope["headers"])) == NDJSON


class Bodies:
    """Reads bodies within the limits of the settings.

    Args:
        settings: ``max_body_bytes``, ``max_upload_bytes``, ``max_body_values``, ``body_timeout``.
    """

    def __init__(self, settings: Settings) -> None:
        self._most_bytes = settings.max_body_bytes
        self._most_upload = settings.max_upload_bytes
        self._most_values = settings.max_body_values
        self._seconds = settings.body_timeout

    async def read(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, room: Body
    ) -> bytes | Receive | None:
        """The whole body; or how the route receives it, if it reads it itself.

        Without room, the request gets 429 before the body is read if its head states the size.

        Returns:
            None if the client left early.

        Raises:
            FullError, MediaTypeError, SlowBodyError, TooLargeError: the body is not acceptable.
        """
        if _UPLOADS.fullmatch(scope["path"]):
            _check_coding(headers)
            self._length(headers, self._most_upload, _UPLOAD_HINT)
            room.reach(_UPLOAD_MEMORY)
            return self._counted(scope, receive)
        if sends_lines(scope):
            _check_coding(headers)
            _check_charset(headers)
            room.reach(LINES_MEMORY)
            return receive
        if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
            _check_coding(headers)
            if _media_type(headers) not in JSON_TYPES:
                raise MediaTypeError("content-type: send JSON with Content-Type: application/json")
            _check_charset(headers)
            room.reach(memory.needed(self._length(headers, self._most_bytes, _HINT)))
        body, most = await self._whole(receive, scope["docsplit.deadline"] - time.monotonic(), room)
        if body:
            found = most if most <= self._most_values else await self._values(body)
            room.reach(memory.needed(len(body), found))
        return body

    async def _whole(
        self, receive: Receive, allowed: float, room: Body
    ) -> tuple[bytes | None, int]:
        """Return the body and an upper bound of its values; None if the client left early."""
        chunks: list[bytes] = []
        size = 0
        found = 1
        began = asyncio.get_running_loop().time()
        expiry = began + allowed
        try:
            async with asyncio.timeout_at(min(expiry, began + self._seconds)) as limit:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None, 0
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    found += marks(chunk)
                    if size > self._most_bytes:
                        raise _too_large("has more", self._most_bytes, _HINT)
                    room.reach(memory.needed(size))
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks), found
                    limit.reschedule(min(expiry, began + self._seconds + size / BODY_RATE))
                    if size // precedence.LARGE > (size - len(chunk)) // precedence.LARGE:
                        await precedence.pause()
        except TimeoutError as error:
            raise SlowBodyError("the body did not arrive in time") from error

    def _counted(self, scope: Scope, receive: Receive) -> Receive:
        """Limit the size and the time of an upload, whose deadline begins when it is whole."""
        began = asyncio.get_running_loop().time()
        allowed = scope["docsplit.deadline"] - time.monotonic()
        size = 0

        async def counted() -> Message:
            nonlocal size
            try:
                async with asyncio.timeout_at(began + self._seconds + size / BODY_RATE):
                    message = await receive()
            except TimeoutError as error:
                raise SlowBodyError(
                    "the body did not arrive in time", headers={"connection": "close"}
                ) from error
            size += len(message.get("body", b""))
            if size > self._most_upload:
                raise _too_large("has more", self._most_upload, _UPLOAD_HINT)
            if message["type"] == "http.request" and not message.get("more_body", False):
                scope["docsplit.deadline"] = time.monotonic() + allowed
            return message

        return counted

    def _length(self, headers: Mapping[bytes, bytes], most: int, hint: str) -> int:
        length = stated_length(headers) or 0
        if length > most:
            raise _too_large(f"has {length}", most, hint)
        return length

    async def _values(self, body: bytes) -> int:
        """Count the values of a body; raise TooLargeError if they exceed the limit."""
        found = 0
        for found in values(body):
            if found > self._most_values:
                raise TooLargeError(
                    f"the body holds more than {self._most_values} JSON values, which is the "
                    "limit: send several requests",
                    code="body_too_large",
                )
            await precedence.pause()
            await asyncio.sleep(0)
        return found


def stated_length(headers: Mapping[bytes, bytes]) -> int | None:
    """The ``Content-Length``; None if the head does not state it."""
    stated = headers.get(b"content-length", b"")
    return int(stated) if stated.isdigit() else None


def _media_type(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()


def _check_charset(headers: Mapping[bytes, bytes]) -> None:
    given = headers.get(b"content-type", b"").decode("latin-1").lower()
    for parameter in given.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("", "utf-8", "utf8"):
            raise MediaTypeError("content-type: send the JSON in UTF-8")


def _check_coding(headers: Mapping[bytes, bytes]) -> None:
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
        raise MediaTypeError("content-encoding: send the body uncompressed")


def _too_large(found: str, most: int, hint: str) -> ServiceError:
    return TooLargeError(
        f"the body {found} bytes, the limit is {most}{hint}",
        code="body_too_large",
        headers={"connection": "close"},
    )
