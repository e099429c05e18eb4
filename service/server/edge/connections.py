"""Connections: each ends within its limits, whatever its client sends or leaves out.

uvicorn parses HTTP with httptools, but a large or slow head, a slow reader and the number of
connections have no limit there. ``Connection`` stands between asyncio and uvicorn's protocol and
reads no HTTP. The parser tells it where a head ends, the layer when a request begins and when its
answer is complete; while no request is in progress, one timer always runs. It depends only on
``asyncio.Protocol``, httptools' callbacks, uvicorn's setting ``http`` and ASGI's ``state``.
"""

import asyncio
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from prometheus_client import Counter
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Bytes of an answer in the kernel that it has not sent yet: a client that takes half of them lets
# the service write again. Without a limit, the kernel holds megabytes.
UNSENT = 1 << 15
# seconds without a request; above the usual 60 s of balancers, so that they close first
IDLE_SECONDS = 75.0
# Seconds for the answer of a client that closed its half of the connection. One that has left
# looks the same until the service writes to it.
HALF_CLOSED_SECONDS = 0.5
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_KEY = "docsplit.connection"


def _answer(status: bytes, error: bytes) -> bytes:
    return (
        b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n%s" % (status, len(error), error)
    )


_FULL = _answer(
    b"503 Service Unavailable",
    b'{"error":"too many connections: ask again soon","error_type":"Overloaded"}',
)
_LARGE = _answer(
    b"431 Request Header Fields Too Large",
    b'{"error":"request line and headers are too large","error_type":"TooLarge"}',
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections.

    Attributes:
        head_bytes: most bytes of a head that is not whole, and of one read from the socket.
        head_seconds: from the connection, or from the first byte after an answer, to the end of a
            request's head; also for the rest of a body that is already answered.
        read_seconds: in which a client must take some of the answer that waits for it.
        connections: most open ones; a new one closes the one that has been idle longest.
        closed: counts connections that the service closed early, by reason.
        idle: connections without a request in progress, the longest idle first.
    """

    head_bytes: int
    head_seconds: float
    read_seconds: float
    connections: int
    closed: Counter
    open: set["Connection"] = field(default_factory=set)
    idle: dict["Connection", None] = field(default_factory=dict)


class Connection(asyncio.Protocol):
    """A connection of a client; ``limited`` makes the class for uvicorn.

    Args:
        limits: shared by all connections.
        app_state: ASGI's state.
        given: further arguments of uvicorn's protocol.
    """

    def __init__(self, limits: Limits, app_state: dict[str, Any], **given: Any) -> None:
        self._limits = limits
        self._http = _Http(self, app_state={**app_state, _KEY: self}, **given)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._http_transport: _Transport
        self._timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._requests = 0
        # bytes without an end of a head or a part of a body; whether they are of a head
        self.head = 0
        self.reads_head = True
        # whether the timer gives the time until the next request begins
        self._idle = False
        self._half_closed = False
        # whether the client has sent the rest of its request, if there is one
        self.whole = True
        # whether the rest of a request is discarded before the connection closes
        self.lingers = False

    def begin(self, has_body: bool) -> None:
        """Called when the application gets a request."""
        self._requests += 1
        self.whole = not has_body
        self._limits.idle.pop(self, None)
        if not (self._half_closed or self.lingers):
            self._stop_timer()

    def answered(self) -> None:
        """Called when the application has sent a whole answer, or will send none."""
        self._requests -= 1
        self._http_transport.flush()
        if self._transport.get_write_buffer_size():
            self._watch_reader()
        if self._requests or self.lingers or self not in self._limits.open:
            return
        self._limits.idle[self] = None
        if self._half_closed:
            self._transport.close()
        elif self.whole:
            self._end_after(IDLE_SECONDS, "idle")
            self._idle = True
        else:
            self._end_after(self._limits.head_seconds, "unread")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio, like the methods below."""
        self._transport = cast("asyncio.Transport", transport)
        # not every system has it
        with suppress(OSError, AttributeError):
            opened = self._transport.get_extra_info("socket")
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        self._http_transport = _Transport(self, self._transport)
        self._http.connection_made(cast("asyncio.Transport", self._http_transport))
        limits = self._limits
        limits.open.add(self)
        self._end_after(limits.head_seconds, "slow_head")
        if len(limits.open) > limits.connections:
            if not limits.idle:
                limits.closed.labels("crowd").inc()
                self._transport.write(_FULL)
                self._transport.close()
                return
            next(iter(limits.idle))._abort("crowd")
        limits.idle[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._stop_timer()
        self._stop_watching()
        if not self.lingers:
            self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing() or self.lingers:
            return
        if not self._requests:
            self.whole = False
        if self._idle:
            self._idle = False
            self._end_after(self._limits.head_seconds, "slow_head")
        if self.reads_head and self.head == 0:
            # HTTP/1.1 ignores a wish for another protocol, which curl --http2 and Java's client
            # express by default (RFC 9110, 7.8); httptools takes the body for that protocol's
            blank_line = data.find(b"\r\n\r\n")
            end = blank_line if blank_line >= 0 else len(data)
            if _UPGRADE.search(data, 0, end):
                data = _UPGRADE.sub(b"\r\nignored:", data[:end]) + data[end:]
        self.head += len(data)
        self._http.data_received(data)
        if self.head > self._limits.head_bytes:
            self._refuse_head()

    def eof_received(self) -> bool:
        if not self._requests or not self.whole or self.lingers:
            return False
        self._half_closed = True
        self._end_after(HALF_CLOSED_SECONDS, "left")
        return True

    def pause_writing(self) -> None:
        self._http.pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._stop_watching()
        self._http.resume_writing()

    def close(self) -> None:
        """Close the connection, once the client has sent the rest of its request.

        Otherwise the kernel resets it, and the client may never see the answer.
        """
        self._http_transport.flush()
        if self._transport.get_write_buffer_size():
            self._watch_reader()
        if self.whole or self._transport.is_closing():
            self._transport.close()
        elif not self.lingers:
            self.lingers = True
            # uvicorn stops reading while a body waits for the application
            self._transport.resume_reading()
            self._transport.write_eof()
            self._end_after(self._limits.head_seconds, "unread")
            # a request that is still in progress ends
            self._http.connection_lost(None)

    def _refuse_head(self) -> None:
        """Answer 431, or only end the connection while the request before is answered."""
        if self._requests:
            self._abort("head")
            return
        self._limits.closed.labels("head").inc()
        self._transport.write(_LARGE)
        self.whole = False
        self.close()

    def _end_after(self, seconds: float, reason: str) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self._end, reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._idle = None, False

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
        if self._unread() >= before > 0:
            self._abort("slow_reader")
        elif self._unread():
            self._watch_reader()

    def _unread(self) -> int:
        return self._transport.get_write_buffer_size()

    def _end(self, reason: str) -> None:
        if reason == "idle":
            self._transport.close()
        elif reason == "left":
            self._transport.abort()
        else:
            self._abort(reason)

    def _abort(self, reason: str) -> None:
        self._limits.closed.labels(reason).inc()
        # at once, not in the next turn of the loop: the next connection needs its place
        self._forget()
        self._transport.abort()

    def _forget(self) -> None:
        self._limits.open.discard(self)
        self._limits.idle.pop(self, None)


class _Http(HttpToolsProtocol):
    """uvicorn's protocol, which tells its connection where heads begin and end."""

    def __init__(self, connection: Connection, **given: Any) -> None:
        super().__init__(**given)
        self._connection = connection

    def on_headers_complete(self) -> None:
        """Called by httptools; an exception becomes 400."""
        self._connection.head = 0
        self._connection.reads_head = False
        names = [name for name, _ in self.headers]
        hosts = names.count(b"host")
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            raise ValueError("a request has one header host")
        for name, value in self.headers:
            # llhttp takes any codings that end with chunked, and uvicorn decodes no other
            if name == b"transfer-encoding" and value.lower() != b"chunked":
                raise ValueError("a body has no other coding than chunked")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Called by httptools, not for trailers and extensions of chunks."""
        self._connection.head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Called by httptools."""
        self._connection.head = 0
        self._connection.reads_head = True
        super().on_message_complete()


class _Transport:
    """The transport that uvicorn sees; its connection decides how ``close`` happens.

    uvicorn writes an answer's head and its body in two calls. They leave in one: a process that
    dies between the two would leave a balancer with a head that it can't take back.
    """

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self._waiting = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._waiting:
            self._transport.writelines((self._waiting, data))
            self._waiting = b""
        else:
            self._waiting = data
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        if self._waiting:
            self._transport.write(self._waiting)
            self._waiting = b""

    def close(self) -> None:
        self._connection.close()

    def is_closing(self) -> bool:
        return self._connection.lingers or self._transport.is_closing()


def limited(limits: Limits) -> type[asyncio.Protocol]:
    """A class of connections with these limits, for ``uvicorn.Config``'s ``http``."""
    return cast("type[asyncio.Protocol]", partial(Connection, limits))


def of(scope: Scope) -> Connection | None:
    """The connection of a request; None outside ``limited``."""
    found: Connection | None = scope.get("state", {}).get(_KEY)
    return found
