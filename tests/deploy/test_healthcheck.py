"""The image's HEALTHCHECK command against answers, faults and silence."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def check(**variables: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("DOCSPLIT_")} | variables
    return subprocess.run(
        [sys.executable, "-m", "service.healthcheck"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def answering(answer: bytes | None, host: str = "127.0.0.1") -> Iterator[int]:
    """A port that sends these bytes to one connection and closes it; with None it stays silent."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                if answer is None:
                    connection.recv(1)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_ready() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as port:
        done = check(DOCSPLIT_HOST="0.0.0.0", DOCSPLIT_PORT=str(port))
    assert done.returncode == 0, done.stdout
    assert "200" in done.stdout


def test_listening_on_every_ipv6_address() -> None:
    try:
        with answering(b"HTTP/1.1 200 OK\r\n\r\n", "::1") as port:
            done = check(DOCSPLIT_HOST="::", DOCSPLIT_PORT=str(port))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n200", "503"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "404"),
        (b"", "closed without an answer"),
        (b"200", "200"),
        (None, "timed out"),
    ],
)
def test_not_ready(answer: bytes | None, said: str) -> None:
    with answering(answer) as port:
        done = check(DOCSPLIT_PORT=str(port))
    assert done.returncode == 1
    assert said in done.stdout
    assert not done.stderr


@pytest.mark.parametrize("port", ["http", "99999999"])
def test_an_invalid_port(port: str) -> None:
    done = check(DOCSPLIT_PORT=port)
    assert done.returncode == 1
    assert port in done.stdout
    assert not done.stderr


def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        done = check(DOCSPLIT_PORT=str(bound.getsockname()[1]))
    assert done.returncode == 1
    assert "refused" in done.stdout
