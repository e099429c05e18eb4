"""Answers that clients read slowly: they count as memory of requests until they are read."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conftest import Server, serving, slow_reader, wait_until

SLOW, OTHER = "a-key-of-a-slow-client-for-tests", "a-key-of-another-client-for-tests"
# one client may hold half: three answers of 9 MB
CAPACITY = 60_000_000
# a long answer to a short body
BODY = json.dumps({"inputs": ["a"] * 2048}).encode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    flags = {
        "--api-keys": f"{SLOW},{OTHER}",
        "--max-inflight-bytes": str(CAPACITY),
        "--max-body-bytes": str(1 << 20),
        "--max-body-values": "20000",
    }
    with serving(tmp_path / "log", *(word for flag in flags.items() for word in flag)) as running:
        yield running


def ask(server: Server, key: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    return httpx.post(f"{server.url}/embed", content=BODY, headers=headers, timeout=30)


def send(server: Server, key: str) -> socket.socket:
    """Send a request and read only the first line of the answer."""
    opened = slow_reader("127.0.0.1", urlsplit(server.url).port or 0)
    opened.sendall(
        f"POST /embed HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
        + BODY
    )
    assert opened.recv(12) == b"HTTP/1.1 200"
    return opened


def reserved(server: Server) -> float:
    return server.metric("docsplit_inflight_bytes")


def test_unread_answers_count_until_they_are_read(server: Server) -> None:
    length = len(ask(server, SLOW).content)
    assert 3 * length <= CAPACITY / 2 < 4 * length
    wait_until(lambda: reserved(server) == 0, 10)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(closing(send(server, SLOW)))
        assert reserved(server) >= 3 * length
        refused = ask(server, SLOW)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "memory" in refused.json()["error"]
        assert len(ask(server, OTHER).json()) == 2048
    wait_until(lambda: reserved(server) == 0, 10)
    assert ask(server, SLOW).content == ask(server, OTHER).content
