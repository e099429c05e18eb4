"""uvicorn's HTTP connection within bounds: heads, trailers, slow readers, idle connections.

uvicorn leaves these to a proxy in front. Behind one they rarely matter; without one a client could
hold memory and descriptors for as long as it likes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import ClassVar

from prometheus_client import Counter, Gauge
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.server.edge.errors import NativeError

# bytes a second; a client that reads an answer more slowly, or not at all, has left
READ_RATE = 1024
# after an answer that came before the whole request: for what is on its way
LINGER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What connections may take.

    Attributes:
        head_bytes: request line and headers; also what may come in a row beside the body itself.
        head_seconds: from the connection, or a request's first byte, to the end of its head.
        read_seconds: over which a client must read ``READ_RATE`` of an answer that waits for it.
        connections: open ones, at most; the longest idle one makes room for a new one.
        opened: how many there are.
        closed: counts those closed from this side before their time, by reason.
        idle: connections without a request, longest first.
    """

    head_bytes: int
    head_seconds: float
    read_seconds: float
    connections: int
    opened: Gauge
    closed: Counter
    idle: dict[BoundedConnection, None] = field(default_factory=dict)


class BoundedConnection(HttpToolsProtocol):
    """A connection of a client; ``bounded`` makes the class for given limits."""

    limits: ClassVar[Limits]
    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _linger_timer: asyncio.TimerHandle | None = None
    # bytes that came in a row without a new request or a part of a body
    _bare = 0
    _moved = False
    # of the request that is being read
    _in_head = False
    _whole = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        limits = self.limits
        limits.opened.inc()
        if len(self.connections) > limits.connections:
            if not limits.idle:
                self._refuse(503, "too many connections: ask again soon", "crowd")
                return
            next(iter(limits.idle))._give_up("crowd")
        limits.idle[self] = None
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.idle.pop(self, None)
        self.limits.opened.dec()
        for timer in (self._head_timer, self._read_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._moved = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        self._bare = 0 if self._moved else self._bare + len(data)
        if self._bare > self.limits.head_bytes:
            self._refuse_head()
        elif self in self.limits.idle and (self._in_head or self._bare):
            self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._moved, self._in_head, self._whole = True, True, False

    def on_headers_complete(self) -> None:
        self._moved, self._in_head = True, False
        if self.transport.is_closing():
            return
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.head_bytes:
            self._refuse_head()
            return
        self.limits.idle.pop(self, None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._moved = True
        if self.cycle is not None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._moved = self._whole = True
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
        # a refused head has none
        if self.cycle is not None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._watch_reader()
        if self.transport.is_closing():
            return
        # else the next request of a pipeline is answered now
        if self.cycle.response_complete:
            self.limits.idle[self] = None
            if not self._whole:
                seconds = min(LINGER_SECONDS, self.limits.read_seconds)
                self._linger_timer = self.loop.call_later(seconds, self._give_up, "unread")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def send_400_response(self, msg: str) -> None:
        # what follows a refused head need not make sense
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def timeout_keep_alive_handler(self) -> None:
        # closing waits for what is not sent yet; who has not read it until now never will
        if self.transport.get_write_buffer_size():
            self._give_up("slow_reader")
        super().timeout_keep_alive_handler()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(
                self.limits.head_seconds, self._give_up, "slow_head"
            )

    def _watch_reader(self) -> None:
        if self._read_timer is None:
            left = self.transport.get_write_buffer_size()
            self._read_timer = self.loop.call_later(
                self.limits.read_seconds, self._check_reader, left
            )

    def _check_reader(self, before: int) -> None:
        self._read_timer = None
        left = self.transport.get_write_buffer_size()
        if left and before - left < min(before, self.limits.read_seconds * READ_RATE):
            self._give_up("slow_reader")
        elif left:
            self._watch_reader()

    def _refuse_head(self) -> None:
        most = self.limits.head_bytes
        self._refuse(431, f"request line and headers are over the limit of {most} bytes", "head")

    def _refuse(self, status: int, message: str, reason: str) -> None:
        """Answer without a request, and close; in the midst of one, close."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            kind = "TooLarge" if status == 431 else "Overloaded"
            body = NativeError(error=message, error_type=kind).model_dump_json().encode()
            head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            close = b"connection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head.encode() + close + body)
            self.limits.closed.labels(reason).inc()
            self.limits.idle.pop(self, None)
            self.transport.close()
        else:
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            return
        self.limits.closed.labels(reason).inc()
        self.limits.idle.pop(self, None)
        # now, not with the next turn of the loop: it makes room for another
        self.connections.discard(self)
        self.transport.abort()


def bounded(limits: Limits) -> type[asyncio.Protocol]:
    """The class of connections within these limits, for ``uvicorn.Config``'s ``http``."""
    return type("Connection", (BoundedConnection,), {"limits": limits})
