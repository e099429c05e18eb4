"""Limits on connections: slow or large heads, trailers, slow readers, too many connections.

uvicorn leaves these limits to a proxy. Without a proxy, a client could hold memory and descriptors
for any time. ``BoundedConnection`` sits between asyncio and uvicorn's protocol. It parses the
requests itself, and ASGI reports when each one is answered. It depends only on
``asyncio.Protocol`` and on ASGI's ``state``.
"""

import asyncio
import fcntl
import socket
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import httptools
from prometheus_client import Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.errors import MalformedError
from service.server.edge.errors import NativeError
from service.server.edge.parser import Parser

# bytes per second; a client that reads an answer more slowly counts as gone
READ_RATE = 1024
# most bytes of answers in the kernel that it has not sent yet; without, it holds megabytes
UNSENT = 1 << 17
# key in ASGI's state
KEY = "docsplit.connection"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections.

    Attributes:
        head_bytes: request line and headers; also the most bytes in a row that belong to no body.
        head_seconds: from the connection, or from a request's first byte, to the end of its head;
            also the limit for the rest of a request that is already answered.
        read_seconds: period in which a client must read ``READ_RATE`` of a waiting answer.
        connections: most open ones; a new one closes the one that has been idle longest.
        closed: counts connections that the service closed early, by reason.
        open: all connections.
        idle: connections without a request, the longest idle first.
    """

    head_bytes: int
    head_seconds: float
    read_seconds: float
    connections: int
    closed: Counter
    open: set["BoundedConnection"] = field(default_factory=set)
    idle: dict["BoundedConnection", None] = field(default_factory=dict)


class _Lingering:
    """The transport that uvicorn sees; its connection decides how ``close`` happens."""

    def __init__(self, connection: "BoundedConnection", transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        self._connection.close()

    def is_closing(self) -> bool:
        return self._connection.lingers or self._transport.is_closing()


class _Http(HttpToolsProtocol):
    """uvicorn's protocol; an invalid request gets an error in the form of all others."""

    reason = ""
    """why the parser refused the request"""

    def send_400_response(self, msg: str) -> None:
        message = f"not a valid HTTP/1.1 request: {self.reason}"
        # a blank ends the URL, so the parser misses the version after it
        if " url " in message or "Expected HTTP/" in message:
            message += "; percent-encode blanks and characters outside ASCII in the URL"
        self.transport.write(_error(400, message, MalformedError.kind))
        self.transport.close()


def _error(status: int, message: str, kind: str) -> bytes:
    """A whole answer, after which the connection closes."""
    body = NativeError(error=message, error_type=kind).model_dump_json().encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
    length = f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return (head + length).encode() + body


class BoundedConnection(asyncio.Protocol):
    """A connection of a client; ``bounded`` makes the class for uvicorn.

    If uvicorn closes it while the client still sends, the connection discards the rest of the
    request first. Otherwise the kernel resets it, and the client may never see the answer.

    Args:
        limits: shared by all connections.
        app_state: ASGI's state.
        given: further arguments of uvicorn's protocol.
    """

    def __init__(self, limits: Limits, app_state: dict[str, Any], **given: Any) -> None:
        self._limits = limits
        self._http = _Http(app_state={**app_state, KEY: self}, **given)
        parser = Parser(self._http, after_close=True)
        self._http.parser = cast("httptools.HttpRequestParser", parser)
        self._parser = Parser(self)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._request_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        # requests with a complete head and an incomplete answer
        self._open_requests = 0
        # bytes that arrived in a row without a new request or a part of a body
        self._bare = 0
        self._moved = False
        # whether only the rest of a request is expected, which is discarded
        self.lingers = False
        self._is_http = True
        # these describe the request that is being read
        self._head = 0
        self._in_head = False
        self._whole = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # not every system has it
        with suppress(OSError, AttributeError):
            opened = self._transport.get_extra_info("socket")
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        self._http.connection_made(cast("asyncio.Transport", _Lingering(self, self._transport)))
        limits = self._limits
        limits.open.add(self)
        if len(limits.open) > limits.connections:
            if not limits.idle:
                self._refuse(503, "too many connections: ask again soon", "crowd")
                return
            next(iter(limits.idle))._abort("crowd")
        limits.idle[self] = None
        self._close_unless_done("slow_head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._cancel_timer()
        self._stop_watching()
        self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # data after a refused head may be garbage
        if self._transport.is_closing():
            return
        self._moved = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            # uvicorn meets the same error, and answers
            self._is_http = False
            self._http.reason = str(error)
        if self.lingers:
            if not self._is_http:
                self._transport.close()
            return
        self._bare = 0 if self._moved else self._bare + len(data)
        if max(self._bare, self._head) > self._limits.head_bytes:
            most = self._limits.head_bytes
            message = f"request line and headers are over the limit of {most} bytes"
            self._refuse(431, message, "head")
            return
        self._http.data_received(data)
        if not self._open_requests and (self._in_head or self._bare):
            self._close_unless_done("slow_head")

    def eof_received(self) -> None:
        self._http.eof_received()

    def close(self) -> None:
        """Close the connection once the client has sent the rest of its request."""
        rest = not self._whole and not self._in_head and self._is_http
        if not rest or self._request_timer is not None or self._transport.is_closing():
            self._transport.close()
        elif not self.lingers:
            self._linger()

    def _linger(self) -> None:
        """End the answer, and discard what the client still sends."""
        self.lingers = True
        self._cancel_timer()
        # uvicorn stops reading while a body waits for the application
        self._transport.resume_reading()
        self._transport.write_eof()
        self._close_unless_done("unread")

    def pause_writing(self) -> None:
        self._http.pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        # the client read enough; what the application writes now is no sign of a slow reader
        self._stop_watching()
        self._http.resume_writing()

    def on_message_begin(self) -> None:
        """Called by the parser, like the methods below."""
        self._head = 0
        self._moved, self._in_head, self._whole = True, True, False

    def on_url(self, url: bytes) -> None:
        self._head += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        self._moved, self._in_head = True, False
        if self.lingers:
            return
        self._cancel_timer()
        if self._head <= self._limits.head_bytes:
            self._open_requests += 1
            self._limits.idle.pop(self, None)

    def on_body(self, _: bytes) -> None:
        self._moved = True

    def on_message_complete(self) -> None:
        self._moved = self._whole = True
        self._cancel_timer()
        if self.lingers:
            # now: another request may follow in the same data
            self._transport.close()

    def answered(self) -> None:
        """Called when the application has sent a whole answer."""
        self._open_requests -= 1
        if self._transport.get_write_buffer_size():
            self._watch_reader()
        if not self._open_requests and self in self._limits.open:
            self._limits.idle[self] = None
            if not self._whole:
                self._close_unless_done("unread")

    def _close_unless_done(self, reason: str) -> None:
        """Close the connection unless a request's head, or the rest of it, arrives in time."""
        if self._request_timer is None:
            seconds = self._limits.head_seconds
            self._request_timer = self._loop.call_later(seconds, self._abort, reason)

    def _cancel_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _watch_reader(self) -> None:
        if self._read_timer is None:
            self._read_timer = self._loop.call_later(
                self._limits.read_seconds, self._check_reader, self._unread()
            )

    def _stop_watching(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _check_reader(self, before: int) -> None:
        self._read_timer = None
        if not self._transport.get_write_buffer_size():
            return
        read = before - self._unread()
        if read < min(before, self._limits.read_seconds * READ_RATE):
            self._abort("slow_reader")
        else:
            self._watch_reader()

    def _unread(self) -> int:
        """Bytes that wait in this process and, on Linux, in the kernel for the client."""
        queued = bytes(4)
        with suppress(OSError):
            queued = fcntl.ioctl(self._transport.get_extra_info("socket"), termios.TIOCOUTQ, queued)
        return self._transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)

    def _refuse(self, status: int, message: str, reason: str) -> None:
        """Send an error when no request is open, and close the connection."""
        if self._open_requests:
            self._abort(reason)
            return
        kind = "TooLarge" if status == 431 else "Overloaded"
        self._transport.write(_error(status, message, kind))
        self._limits.closed.labels(reason).inc()
        if reason == "head":
            self._linger()
        else:
            self._forget()
            self._transport.close()

    def _abort(self, reason: str) -> None:
        if self._transport.is_closing() and not self._transport.get_write_buffer_size():
            return
        self._limits.closed.labels(reason).inc()
        # at once, not in the next turn of the loop: the next connection needs the room
        self._forget()
        self._transport.abort()

    def _forget(self) -> None:
        self._limits.open.discard(self)
        self._limits.idle.pop(self, None)


def bounded(limits: Limits) -> type[asyncio.Protocol]:
    """A class of connections with these limits, for ``uvicorn.Config``'s ``http``."""
    return cast("type[asyncio.Protocol]", partial(BoundedConnection, limits))


class Answers:
    """ASGI middleware that notifies connections of complete answers; the outermost."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope.get("state", {}).get(KEY)

        async def observed(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                connection.answered()

        await self._app(scope, receive, send if connection is None else observed)
