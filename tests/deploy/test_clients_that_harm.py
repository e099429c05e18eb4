"""Slow, huge and many clients at a running service: it cuts them off and serves others."""

from __future__ import annotations

import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conftest import Server, connect, serving, slow_reader, wait_until

MIB = 1 << 20
HEAD = "POST /embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
CROWD = 10_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, light: tuple[str, ...]) -> Iterator[Server]:
    """A service with short time limits."""
    flags = (
        "--header-timeout",
        "1.5",
        "--body-timeout",
        "1.5",
        "--max-header-bytes",
        "8192",
        *light,
    )
    with serving(tmp_path_factory.mktemp("harmed") / "log", *flags) as running:
        yield running


def closed(server: Server, reason: str) -> float:
    text = httpx.get(f"{server.url}/metrics").text
    pattern = rf'^docsplit_connections_closed_total\{{reason="{reason}"\}} (\S+)'
    found = re.search(pattern, text, re.M)
    return float(found[1]) if found else 0


def check_served(server: Server) -> None:
    answer = httpx.post(f"{server.url}/embed", json={"inputs": "others are served"}, timeout=10)
    assert answer.status_code == 200


def answer(opened: socket.socket) -> bytes:
    """All bytes until the service closes; empty if it only closes."""
    received = b""
    with suppress(ConnectionResetError):
        while part := opened.recv(65_536):
            received += part
    return received


def dripped(opened: socket.socket, drop: bytes, most: int = 100) -> bytes:
    """Send one drop at a time until the service closes."""
    with suppress(ConnectionError):
        for _ in range(most):
            opened.sendall(drop)
            time.sleep(0.05)
    return answer(opened)


def test_a_slow_head_is_cut_off(server: Server) -> None:
    before = closed(server, "slow_head")
    with closing(connect(server, 10)) as first, closing(connect(server, 10)) as second:
        first.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n")
        # the second connection sends nothing
        assert dripped(first, b"x: y\r\n") == b""
        assert answer(second) == b""
    assert closed(server, "slow_head") == before + 2


def test_a_slow_head_on_a_kept_connection_is_cut_off(server: Server) -> None:
    with closing(connect(server, 10)) as opened:
        for rest in (2, 0):
            opened.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            received = b""
            while not received.endswith(b"}"):
                received += opened.recv(4096)
            assert received.startswith(b"HTTP/1.1 200")
            # idling for longer than a head may take is allowed
            time.sleep(rest)
        assert dripped(opened, b"\r\n") == b""


@pytest.mark.parametrize("one", [True, False])
def test_a_large_head_is_refused(server: Server, one: bool) -> None:
    before = closed(server, "head")
    headers = f"x: {'y' * 9000}\r\n" if one else "x: y\r\n" * 2000
    with closing(connect(server, 10)) as opened:
        opened.sendall(f"GET /livez HTTP/1.1\r\nHost: a\r\n{headers}\r\n".encode())
        said = answer(opened)
    assert said.startswith(b"HTTP/1.1 431")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error_type"] == "TooLarge"
    assert closed(server, "head") == before + 1


def test_a_head_just_below_the_limit_is_answered(server: Server) -> None:
    with closing(connect(server, 10)) as opened:
        opened.sendall(f"GET /livez HTTP/1.1\r\nHost: a\r\nx: {'y' * 8000}\r\n\r\n".encode())
        assert opened.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("start", "status"),
    [
        ("GET /livez HTTP/1.1\r\nx: ", b"431"),
        ("GET /", b"431"),
        (f"{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\nx: ", b"400"),
        (f"{HEAD}Transfer-Encoding: chunked\r\n\r\n1;x=", b"400"),
    ],
)
def test_an_endless_head_trailer_or_extension_is_cut_off(
    server: Server, start: str, status: bytes
) -> None:
    with closing(connect(server, 10)) as opened:
        opened.sendall(start.encode())
        with suppress(ConnectionError):
            for _ in range(20):
                time.sleep(0.01)
                opened.sendall(b"y" * 1000)
        assert answer(opened)[:12] in (b"HTTP/1.1 " + status, b"")
    check_served(server)


def test_two_requests_in_one_write_with_a_large_head_end(server: Server) -> None:
    one = b"GET /livez HTTP/1.1\r\nHost: a\r\n"
    with closing(connect(server, 10)) as opened:
        opened.sendall(one + b"x: " + 40_000 * b"y" + b"\r\n\r\n" + one + b"\r\n")
        assert answer(opened).startswith(b"HTTP/1.1 431")


def test_control_characters_in_a_header_are_refused(server: Server) -> None:
    with closing(connect(server, 10)) as opened:
        opened.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\ntraceparent: a\x1bb\r\n\r\n")
        assert opened.recv(4096).startswith(b"HTTP/1.1 400")


def test_a_slow_body_gets_408(server: Server) -> None:
    with closing(connect(server, 10)) as opened:
        opened.sendall(f"{HEAD}Content-Length: 1000\r\nx-request-timeout: 60\r\n\r\n".encode())
        assert dripped(opened, b" ").startswith(b"HTTP/1.1 408")


def test_the_service_waits_for_a_body_of_sufficient_speed(server: Server) -> None:
    body = b'{"inputs": "' + b"word " * 16_000 + b'"}'
    with closing(connect(server, 10)) as opened:
        opened.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode())
        for start in range(0, len(body), 8000):
            opened.sendall(body[start : start + 8000])
            time.sleep(0.25)
        assert opened.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_body_after_its_answer_is_not_read_for_ever(server: Server) -> None:
    before = closed(server, "unread")
    with closing(connect(server, 10)) as opened:
        opened.sendall(f"{HEAD}Content-Length: 1000000\r\nContent-Encoding: gzip\r\n\r\n".encode())
        assert dripped(opened, b"x", 200).startswith(b"HTTP/1.1 415")
    assert closed(server, "unread") == before + 1


def test_a_compressed_bomb_is_not_decompressed(server: Server) -> None:
    bomb = gzip.compress(b'{"inputs": "' + b"a " * (50 * MIB) + b'"}')
    assert len(bomb) < MIB
    before = server.metric("process_resident_memory_bytes")
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    refused = httpx.post(f"{server.url}/embed", content=bomb, headers=headers)
    assert refused.status_code == 415
    assert server.metric("process_resident_memory_bytes") - before < 50 * MIB


def test_a_client_that_does_not_read_its_answer_is_cut_off(server: Server) -> None:
    before = closed(server, "slow_reader")
    body = json.dumps({"inputs": ["a"] * 2048}).encode()
    with slow_reader("127.0.0.1", urlsplit(server.url).port or 0) as opened:
        opened.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: closed(server, "slow_reader") == before + 1, 10)
    whole = httpx.post(
        f"{server.url}/embed", content=body, headers={"content-type": "application/json"}
    )
    assert len(whole.json()) == 2048


def test_upgrades_are_refused(server: Server) -> None:
    headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    headers["sec-websocket-key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
    assert httpx.get(f"{server.url}/livez", headers=headers).status_code == 200


def test_ten_thousand_idle_connections_leave_room(tmp_path: Path, light: tuple[str, ...]) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < CROWD + 500:
        pytest.skip(f"this process may open {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CROWD + 500), hard))
    with serving(tmp_path / "log", *light) as server, ExitStack() as opened:
        check_served(server)
        before = server.metric("process_resident_memory_bytes")
        for number in range(CROWD):
            opened.enter_context(closing(connect(server, 10)))
            if number % 2000 == 0:
                check_served(server)
        check_served(server)
        assert server.metric("docsplit_connections") <= 2048
        assert closed(server, "crowd") >= CROWD - 2048
        assert server.metric("process_resident_memory_bytes") - before < 200 * MIB


def test_answers_have_security_headers(server: Server) -> None:
    # a browser keeps the pages, but asks each time whether they are still valid
    stored = {"/livez": "no-store", "/nowhere": "no-store", "/docs": "no-cache", "/": "no-cache"}
    for path, policy in stored.items():
        headers = httpx.get(f"{server.url}{path}").headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == policy, path
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_origins_must_be_named(tmp_path: Path, server: Server, light: tuple[str, ...]) -> None:
    asked = {"origin": "https://app.example", "access-control-request-method": "POST"}
    refused = httpx.options(f"{server.url}/embed", headers=asked)
    assert refused.status_code == 405
    flags = ("--cors-origins", "https://app.example", "--api-keys", "a-key-for-tests-only")
    with serving(tmp_path / "log", *flags, *light) as opened:
        allowed = httpx.options(f"{opened.url}/embed", headers=asked)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        other = httpx.options(f"{opened.url}/embed", headers=asked | {"origin": "https://evil"})
        assert "access-control-allow-origin" not in other.headers
        for sent in ("if-match", "if-none-match", "traceparent,tracestate", "x-document-hash"):
            named = asked | {"access-control-request-headers": sent}
            assert httpx.options(f"{opened.url}/embed", headers=named).status_code == 200, sent
        unnamed = asked | {"access-control-request-headers": "x-forwarded-for"}
        assert httpx.options(f"{opened.url}/embed", headers=unnamed).status_code == 400
        # the key is still required, and the script may read the reason for the refusal
        unknown = httpx.post(f"{opened.url}/embed", json={}, headers=asked)
        assert unknown.status_code == 401
        assert unknown.headers["access-control-allow-origin"] == "https://app.example"
        told = set(unknown.headers["access-control-expose-headers"].split(", "))
        assert told >= {"content-disposition", "etag", "location", "retry-after", "traceparent"}
