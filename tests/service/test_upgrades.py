"""Requests that ask for HTTP/2 or WebSockets are answered as HTTP/1.1, with their bodies."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from tests.conftest import Server, connect

# as curl --http2 and Java's HttpClient send
WISH = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
)
BODY = b'{"inputs": "wool", "dimensions": 2}'
FRAMED = {
    "length": b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n5\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n"
    % (BODY[:5], len(BODY) - 5, BODY[5:]),
}
HEAD = b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
NEXT = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("framed", FRAMED.values(), ids=list(FRAMED))
@pytest.mark.parametrize("cut", [None, 0, 3])
def test_the_service_answers_a_client_that_wishes_another_protocol(
    server: Server, framed: bytes, cut: int | None
) -> None:
    head, body = (
        HEAD + WISH + framed[: framed.index(b"\r\n\r\n") + 4],
        framed.partition(b"\r\n\r\n")[2],
    )
    received = b""
    with closing(connect(server)) as opened:
        if cut is None:
            opened.sendall(head + body + NEXT)
        else:
            opened.sendall(head + body[:cut])
            opened.sendall(body[cut:] + NEXT)
        while part := opened.recv(65_536):
            received += part
    answers = received.split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"200"]
    assert len(json.loads(answers[0].partition(b"\r\n\r\n")[2])[0]) == 2
