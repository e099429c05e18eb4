"""ASGI middleware that limits bodies, and ends the work when its client has left.

Before anything parses a body, it limits the bytes and the JSON values. From both it computes the
memory of the request, and reserves that until the client has read the answer. The routes of uploads
and of lines read their bodies as they arrive.
"""

import asyncio
import re
import time
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import memory, precedence
from service.errors import (
    MediaTypeError,
    NotFoundError,
    ServiceError,
    SlowBodyError,
    TooLargeError,
)
from service.server.edge import deadline, structure
from service.server.edge.errors import response, translate
from service.server.edge.inflight import Body, Inflight, in_parts

# bytes per second; a body must arrive at least this fast
BODY_RATE = 16_384
JSON_TYPES = {"application/json", "application/merge-patch+json"}
_HINT = ": send fewer inputs a request"
_UPLOAD_HINT = " (max_upload_bytes): send fewer files a request"
# bytes of an upload that are in memory, before they are on disk
_UPLOAD_MEMORY = 4 << 20
_UPLOADS = re.compile("/indexes/[^/]+/files|/read|/jobs/embed")
NDJSON = "application/x-ndjson"
# routes that also take lines of JSON, which they read as they arrive
_BY_LINES = {"/embed"}
# memory of a request by lines: texts in work, their vectors, and answers that wait
LINES_MEMORY = 8 << 20
# key in the scope: the memory of a request
ROOM = "docsplit.room"


class Guard:
    """Limits size and arrival time of bodies; cancels the route when the client has left.

    Args:
        app: the application that it protects.
        max_body_bytes: a larger body gets 413 as soon as its size is known.
        max_upload_bytes: the same for the body of an upload of files.
        max_body_values: a body with more JSON values gets 413 before it is parsed.
        inflight: memory of requests. Without room, a request gets 429; if it has a content-length,
            it gets 429 before its body is read.
        request_timeout: seconds that a request may take by default.
        max_request_timeout: largest value of ``x-request-timeout``.
        body_timeout: seconds for a body to arrive; every ``BODY_RATE`` bytes add one second.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_body_bytes: int,
        max_upload_bytes: int,
        max_body_values: int,
        inflight: Inflight,
        request_timeout: float,
        max_request_timeout: float,
        body_timeout: float,
    ) -> None:
        self._app = app
        self._max_body = max_body_bytes
        self._max_upload = max_upload_bytes
        self._max_values = max_body_values
        self._inflight = inflight
        self._timeout = request_timeout
        self._max_timeout = max_request_timeout
        self._body_timeout = body_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        size = int(stated) if stated.isdigit() else precedence.LARGE + 1
        with self._inflight.body() as room, precedence.request(size) as answered:
            parted = in_parts(scope, receive, send, room, answered)
            await self._guard(scope, receive, parted, room)

    async def _guard(self, scope: Scope, receive: Receive, send: Send, room: Body) -> None:
        headers = dict(_decoded(scope))
        try:
            _check_path(scope)
            allowed = deadline.seconds(
                headers.get(deadline.HEADER), self._timeout, self._max_timeout
            )
            scope["docsplit.started"] = time.monotonic()
            scope[ROOM] = room
            scope["docsplit.deadline"] = scope["docsplit.started"] + allowed
            upload = _UPLOADS.fullmatch(scope["path"]) is not None
            lines = sends_lines(scope)
            if upload:
                _check_coding(headers)
                self._length(headers, self._max_upload, _UPLOAD_HINT)
                room.reach(_UPLOAD_MEMORY)
            elif lines:
                _check_coding(headers)
                _check_charset(headers)
                room.reach(LINES_MEMORY)
            else:
                body = await self._whole(headers, receive, allowed, room)
        except ServiceError as error:
            await response(scope["path"], error)(scope, receive, send)
            return
        if upload:
            await self._stream(scope, self._counted(scope, allowed, receive), receive, send)
        elif lines:
            await self._stream(scope, receive, receive, send)
        elif body is not None:
            whole = {"type": "http.request", "body": body, "more_body": False}
            await self._run(scope, replaying(whole, receive), receive, send)

    async def _whole(
        self, headers: dict[str, str], receive: Receive, allowed: float, room: Body
    ) -> bytes | None:
        """Return the body; None if the client left early."""
        if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
            self._check_headers(headers)
            room.reach(memory.needed(self._length(headers, self._max_body, _HINT)))
        body, most = await self._read(receive, allowed, room)
        if body:
            values = most if most <= self._max_values else await self._values(body)
            room.reach(memory.needed(len(body), values))
        return body

    def _check_headers(self, headers: dict[str, str]) -> None:
        _check_coding(headers)
        if _media_type(headers) not in JSON_TYPES:
            raise MediaTypeError("content-type: send JSON with Content-Type: application/json")
        _check_charset(headers)

    def _length(self, headers: dict[str, str], most: int, hint: str) -> int:
        stated = headers.get("content-length", "")
        length = int(stated) if stated.isdigit() else 0
        if length > most:
            raise _too_large(f"has {length}", most, hint)
        return length

    async def _values(self, body: bytes) -> int:
        """Count the values of a body.

        Raises:
            TooLargeError: the number exceeds the limit.
        """
        found = 0
        for found in structure.values(body):
            if found > self._max_values:
                raise TooLargeError(
                    f"the body holds more than {self._max_values} JSON values, which is the limit: "
                    "send several requests",
                    code="body_too_large",
                )
            await precedence.pause()
            await asyncio.sleep(0)
        return found

    async def _read(self, receive: Receive, allowed: float, room: Body) -> tuple[bytes | None, int]:
        """Return the body and an upper bound of its values; None if the client left early."""
        chunks: list[bytes] = []
        size = 0
        values = 1
        began = asyncio.get_running_loop().time()
        expiry = began + allowed
        try:
            async with asyncio.timeout_at(min(expiry, began + self._body_timeout)) as limit:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None, 0
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    values += structure.marks(chunk)
                    if size > self._max_body:
                        raise _too_large("has more", self._max_body, _HINT)
                    room.reach(memory.needed(size))
                    limit.reschedule(min(expiry, began + self._body_timeout + size / BODY_RATE))
                    chunks.append(chunk)
                    if size // precedence.LARGE > (size - len(chunk)) // precedence.LARGE:
                        await precedence.pause()
                    if not message.get("more_body", False):
                        return b"".join(chunks), values
        except TimeoutError as error:
            raise SlowBodyError("the body did not arrive in time") from error

    def _counted(self, scope: Scope, allowed: float, receive: Receive) -> Receive:
        """Limit the size and the time of an upload, whose deadline begins when it is whole."""
        began = asyncio.get_running_loop().time()
        size = 0

        async def counted() -> Message:
            nonlocal size
            pace = began + self._body_timeout + size / BODY_RATE
            try:
                async with asyncio.timeout_at(pace):
                    message = await receive()
            except TimeoutError as error:
                raise SlowBodyError(
                    "the body did not arrive in time", headers={"connection": "close"}
                ) from error
            size += len(message.get("body", b""))
            if size > self._max_upload:
                raise _too_large("has more", self._max_upload, _UPLOAD_HINT)
            if message["type"] == "http.request" and not message.get("more_body", False):
                scope["docsplit.deadline"] = time.monotonic() + allowed
            return message

        return counted

    async def _stream(self, scope: Scope, body: Receive, receive: Receive, send: Send) -> None:
        """Let the route read the body itself.

        Args:
            body: the messages of the body, and the one when the client leaves before its end.
        """
        read = asyncio.Event()

        async def followed() -> Message:
            if read.is_set():
                return await receive()
            message = await body()
            if message["type"] == "http.disconnect":
                read.set()
                # until the route is cancelled
                await asyncio.Event().wait()
            if not message.get("more_body", False):
                read.set()
            return message

        await self._run(scope, followed, receive, send, read)

    async def _run(
        self,
        scope: Scope,
        body: Receive,
        receive: Receive,
        send: Send,
        read: asyncio.Event | None = None,
    ) -> None:
        """Run the route, and cancel it when the client leaves.

        Args:
            body: what the route receives.
            read: set when the route has the whole body, or the client has left before that; until
                then only the route may call ``receive``.
        """
        started = answered = False

        async def observed(message: Message) -> None:
            nonlocal started, answered
            started = True
            answered = answered or not message.get("more_body", True)
            await send(message)

        async def gone() -> None:
            if read is not None:
                await read.wait()
            while (await receive())["type"] != "http.disconnect":
                pass

        work = asyncio.ensure_future(self._app(scope, body, observed))
        watch = asyncio.ensure_future(gone())
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if work.done() or answered:
                await work
        except Exception as error:
            if started:
                raise
            await response(scope["path"], translate(error))(scope, receive, send)
        finally:
            for task in (work, watch):
                task.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)


def replaying(first: Message, receive: Receive) -> Receive:
    """A ``receive`` that returns ``first`` once, and then the messages that follow."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return first

    return replay


def sends_lines(scope: Scope) -> bool:
    """Whether a request has a body of lines, and its route takes them."""
    return (
        scope["path"] in _BY_LINES
        and scope["method"] == "POST"
        and _media_type(dict(_decoded(scope))) == NDJSON
    )


def _decoded(scope: Scope) -> Iterator[tuple[str, str]]:
    return ((k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"])


def _media_type(headers: dict[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_path(scope: Scope) -> None:
    # the server reads bytes that are not UTF-8 as U+FFFD, which another document may have in its id
    if "\ufffd" in scope["path"]:
        try:
            unquote_to_bytes(scope["raw_path"]).decode()
        except UnicodeDecodeError as error:
            raise NotFoundError("no such path: percent-encode it in UTF-8") from error


def _check_charset(headers: dict[str, str]) -> None:
    for parameter in headers.get("content-type", "").lower().split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("", "utf-8", "utf8"):
            raise MediaTypeError("content-type: send the JSON in UTF-8")


def _check_coding(headers: dict[str, str]) -> None:
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise MediaTypeError("content-encoding: send the body uncompressed")


def _too_large(found: str, most: int, hint: str) -> ServiceError:
    return TooLargeError(
        f"the body {found} bytes, the limit is {most}{hint}",
        code="body_too_large",
        headers={"connection": "close"},
    )
