"""Limited connections around uvicorn: each ends, whatever its client sends."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter
from starlette.types import Receive, Scope, Send

from service.server.edge import connections
from service.server.edge.connections import Connection, Limits, limited
from service.server.edge.layer import Exchange
from tests.conftest import NIGHTLY, slow_reader, wait_until

REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


class Server:
    """uvicorn with an application that answers on command.

    Args:
        parts: of each answer.
        closes: whether an answer ends its connection.
        head_seconds: see ``Limits``.
        read_seconds: see ``Limits``.
        connections: see ``Limits``.
    """

    def __init__(
        self,
        parts: tuple[bytes, ...] = (b"ok",),
        closes: bool = False,
        head_seconds: float = 60,
        read_seconds: float = 60,
        connections: int = 1,
    ) -> None:
        self._parts = parts
        self._closes = closes
        self.registry = CollectorRegistry()
        self.limits = Limits(
            head_bytes=1024,
            head_seconds=head_seconds,
            read_seconds=read_seconds,
            connections=connections,
            closed=Counter("closed", "Help", ("reason",), registry=self.registry),
        )
        self.began = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._observe,
                http=limited(self.limits),
                interface="asgi3",
                timeout_graceful_shutdown=5,
                log_config=None,
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))
        self._thread.start()
        wait_until(lambda: self._server.started, 10)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def close(self) -> None:
        self.may_answer.set()
        self._server.should_exit = True
        self._thread.join(10)

    async def _observe(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        try:
            await self._answer(exchange.send)
        finally:
            exchange.end()

    async def _answer(self, send: Send) -> None:
        self.began += 1
        await asyncio.to_thread(self.may_answer.wait, 10)
        headers = [(b"content-length", str(sum(map(len, self._parts))).encode())]
        headers += [(b"connection", b"close")] * self._closes
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def read(connection: socket.socket, answers: int = 1) -> bytes:
    """Read this number of answers of the application."""
    received = b""
    while received.count(b"\r\n\r\nok") < answers:
        part = connection.recv(4096)
        assert part, received
        received += part
    return received


def test_an_answered_connection_makes_room(server: Server) -> None:
    with server.connect() as first, server.connect() as second:
        # the second connection came while the first had sent nothing
        assert first.recv(1) == b""
        for number in (1, 2):
            second.sendall(number * REQUEST)
            read(second, number)
        wait_until(lambda: len(server.limits.idle) == 1, 10)
        with server.connect() as third:
            assert second.recv(1) == b""
            third.sendall(REQUEST)
            read(third)
    assert server.registry.get_sample_value("closed_total", {"reason": "crowd"}) == 2


def test_a_connection_with_an_open_request_makes_no_room(server: Server) -> None:
    server.may_answer.clear()
    with ExitStack() as stack:
        first = stack.enter_context(server.connect())
        # of two pipelined requests, the first is answered before the second begins
        first.sendall(2 * REQUEST)
        wait_until(lambda: server.began == 1, 10)
        second = stack.enter_context(server.connect())
        assert second.recv(4096).startswith(b"HTTP/1.1 503")
        server.may_answer.set()
        read(first, 2)
        assert len(server.limits.idle) == 1


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01",
        "GET /ü HTTP/1.1\r\nhost: a\r\n\r\n".encode(),
        b"GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\na b: c\r\n\r\n",
        *(b"GET / HTTP/1.1\r\nhost: a\r\ntraceparent: a%cb\r\n\r\n" % sign for sign in b"\x00\x0b"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ],
)
def test_an_invalid_request_gets_400(server: Server, sent: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(sent + b"\r\n\r\n" * (b"HTTP" not in sent))
        with connection.makefile("rb") as answer:
            assert answer.read(12) == b"HTTP/1.1 400"
    assert server.began == 0


@pytest.mark.parametrize("sent", [b"GET /" + 2000 * b"y", REQUEST[:-2] + b"x: " + 2000 * b"y"])
def test_a_large_head_gets_431(server: Server, sent: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(sent)
        with connection.makefile("rb") as answer:
            assert answer.read(12) == b"HTTP/1.1 431"
    assert server.began == 0


def test_a_large_head_after_a_request_in_progress_ends_the_connection(server: Server) -> None:
    server.may_answer.clear()
    with server.connect() as connection:
        connection.sendall(REQUEST + REQUEST[:-2] + b"x: " + 500 * b"y")
        wait_until(lambda: server.began == 1, 10)
        assert server.limits.open
        connection.sendall(2000 * b"y")
        wait_until(lambda: not server.limits.open, 10)


class Sent(asyncio.Transport):
    """Keeps what each call sends."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


async def test_a_process_that_dies_leaves_no_head_without_its_body(server: Server) -> None:
    config = uvicorn.Config(server._observe, interface="asgi3", log_config=None)
    config.load()
    state = uvicorn.server.ServerState()
    connection = Connection(server.limits, app_state={}, config=config, server_state=state)
    sent = Sent()
    connection.connection_made(sent)
    connection.data_received(REQUEST)
    await asyncio.gather(*state.tasks)
    [call] = sent.calls
    assert call.startswith(b"HTTP/1.1 200")
    assert call.endswith(b"\r\n\r\nok")


def test_a_client_that_closes_its_half_gets_its_answer(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(REQUEST)
        connection.shutdown(socket.SHUT_WR)
        read(connection)
        assert connection.recv(1) == b""


def test_a_client_that_has_left_is_noticed() -> None:
    with closing(Server()) as server:
        server.may_answer.clear()
        with server.connect() as connection:
            connection.sendall(REQUEST)
            wait_until(lambda: server.began == 1, 10)
        wait_until(lambda: not server.limits.open, 10)


PIECES = [
    REQUEST,
    2 * REQUEST,
    REQUEST[:-2] + b"x: " + 40_000 * b"y" + b"\r\n\r\n" + REQUEST,
    REQUEST[:-4],
    b"\r\n",
    b"\x00",
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n123",
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    b"0\r\n\r\n",
    REQUEST.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"),
    REQUEST.replace(b"\r\n\r\n", b"\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"),
    REQUEST.replace(b"1.1", b"1.0"),
]


@settings(deadline=None, max_examples=100 if NIGHTLY else 10)
@given(
    st.lists(
        st.lists(st.sampled_from([*PIECES, None]), min_size=1, max_size=6), min_size=20, max_size=20
    )
)
def test_every_connection_ends_within_its_limits(sent: list[list[bytes | None]]) -> None:
    # one server for all examples would hide which of them left a connection open
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(Server(head_seconds=0.2, read_seconds=0.2, connections=100)) as server,
        ExitStack() as stack,
    ):
        patch.setattr(connections, "IDLE_SECONDS", 0.2)
        for pieces in sent:
            opened = stack.enter_context(server.connect())
            with suppress(ConnectionError):
                for piece in pieces:
                    if piece is None:
                        opened.shutdown(socket.SHUT_WR)
                        break
                    opened.sendall(piece)
        # the clients neither read nor close
        wait_until(lambda: not server.limits.open, 10)


def test_a_reader_at_a_steady_pace_is_not_closed() -> None:
    part = bytes(1 << 16)
    size = 0
    with (
        closing(Server((part,) * 64, read_seconds=0.2)) as server,
        slow_reader(*server.address) as connection,
    ):
        connection.sendall(REQUEST)
        while size < 64 * len(part):
            got = connection.recv(4096)
            assert got, size
            size += len(got)
            time.sleep(0.001)
    assert not server.registry.get_sample_value("closed_total", {"reason": "slow_reader"})


LARGE = 8_000_000
UPLOAD = f"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {LARGE}\r\n\r\n".encode()


def test_an_answer_before_the_end_of_a_body_reaches_its_client() -> None:
    with closing(Server(closes=True)) as server, server.connect() as connection:
        connection.sendall(UPLOAD)
        read(connection)
        # the answer is whole, and the client still sends
        assert connection.recv(1) == b""
        connection.sendall(bytes(LARGE))
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        connection.close()
        wait_until(lambda: not server.limits.open, 10)
    assert not server.registry.get_sample_value("closed_total", {"reason": "unread"})


def test_the_rest_of_an_answered_body_must_arrive_in_time() -> None:
    with (
        closing(Server(closes=True, head_seconds=0.3)) as server,
        server.connect() as connection,
    ):
        connection.sendall(UPLOAD)
        read(connection)
        wait_until(lambda: not server.limits.open, 10)
    assert server.registry.get_sample_value("closed_total", {"reason": "unread"}) == 1


def test_a_client_that_sends_a_large_head_sees_that_it_is_refused() -> None:
    with closing(Server()) as server, server.connect() as connection:
        connection.sendall(REQUEST[:-2] + b"x: " + 2000 * b"y" + b"\r\nx: ")
        assert connection.recv(4096).startswith(b"HTTP/1.1 431")
        connection.sendall(4_000_000 * b"y" + b"\r\n\r\n")
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert server.began == 0


def test_a_further_request_does_not_keep_a_refused_connection() -> None:
    with (
        closing(Server(closes=True, head_seconds=0.3)) as server,
        server.connect() as connection,
    ):
        connection.sendall(UPLOAD)
        read(connection)
        with suppress(ConnectionError):
            connection.sendall(bytes(LARGE) + REQUEST[:-2])
        wait_until(lambda: not server.limits.open, 10)
        assert server.began == 1
