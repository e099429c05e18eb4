"""Requests that ask for HTTP/2 or WebSockets are answered as HTTP/1.1, with their bodies."""

from __future__ import annotations

import json
from contextlib import closing

import httptools
import pytest

from service.server.edge.parser import Parser
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


class Parsed:
    """What a parser called."""

    def __init__(self) -> None:
        self.requests: list[tuple[bytes, dict[bytes, bytes], bytes, bool]] = []

    def on_message_begin(self) -> None:
        self.requests.append((b"", {}, b"", False))

    def on_url(self, url: bytes) -> None:
        self._change(url=url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.requests[-1][1][name] = value

    def on_headers_complete(self) -> None:
        pass

    def on_body(self, body: bytes) -> None:
        self._change(body=body)

    def on_message_complete(self) -> None:
        self._change(whole=True)

    def _change(self, url: bytes = b"", body: bytes = b"", whole: bool = False) -> None:
        one = self.requests[-1]
        assert not one[3]
        self.requests[-1] = (one[0] + url, one[1], one[2] + body, whole)


@pytest.mark.parametrize("framed", FRAMED.values(), ids=list(FRAMED))
@pytest.mark.parametrize("wish", [WISH, b"Connection: upgrade\r\nUpgrade: websocket\r\n"])
def test_a_body_behind_a_wish_is_read_wherever_the_data_is_cut(wish: bytes, framed: bytes) -> None:
    data = HEAD + wish + framed + HEAD + wish + framed + NEXT
    seen = []
    for step in (1, 7, 64, len(data)):
        found = Parsed()
        parser = Parser(found)
        for start in range(0, len(data), step):
            parser.feed_data(data[start : start + step])
        seen.append(found.requests)
    assert all(one == seen[0] for one in seen)
    first, second, third = seen[0]
    assert first == second
    assert first[0] == b"/embed"
    assert first[1][b"Upgrade"] in (b"h2c", b"websocket")
    assert first[2:] == (BODY, True)
    assert (third[0], third[2], third[3]) == (b"/livez", b"", True)


def test_a_wrong_body_behind_a_wish_is_an_error() -> None:
    parser = Parser(Parsed())
    with pytest.raises(httptools.HttpParserError):
        parser.feed_data(HEAD + WISH + b"Transfer-Encoding: chunked\r\n\r\nwool\r\n")


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
