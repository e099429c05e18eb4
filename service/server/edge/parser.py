"""httptools' parser of requests, which goes on after a head that asks for another protocol.

A client may ask for HTTP/2 or WebSockets in the head of any request: ``curl --http2`` and Java's
``HttpClient`` do so by default. A server that has only HTTP/1.1 ignores that (RFC 9110, 7.8).
httptools instead ends the request there, so that its body counts as data of the other protocol.
"""

from __future__ import annotations

from typing import Any

import httptools

_FRAMING = {b"content-length", b"transfer-encoding"}


class Parser:
    """Parses the requests of a connection; no request upgrades it.

    Args:
        target: has httptools' callbacks that this class has too.
        after_close: ignore data after a request with ``Connection: close``, which is otherwise an
            error.
    """

    def __init__(self, target: Any, *, after_close: bool = False) -> None:
        self._target = target
        self._after_close = after_close
        # headers that say where the body of the present request ends
        self._framing: list[bytes] = []
        # whether the head that is being parsed was parsed before
        self._again = False
        self._inner = self._started()

    def _started(self) -> httptools.HttpRequestParser:
        inner = httptools.HttpRequestParser(self)
        if self._after_close:
            inner.set_dangerous_leniencies(lenient_data_after_close=True)
        return inner

    def feed_data(self, data: bytes) -> None:
        """Parse what arrived; raises ``HttpParserError`` if that is no request."""
        while True:
            try:
                self._inner.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
            else:
                return
            # a parser that is at the beginning of the same body
            self._inner = self._started()
            self._again = True
            self._inner.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(self._framing) + b"\r\n")

    def should_upgrade(self) -> bool:
        """Whether the connection gets another protocol: never."""
        return False

    def should_keep_alive(self) -> bool:
        """Whether the client may send another request, as its head says."""
        return bool(self._inner.should_keep_alive())

    def get_http_version(self) -> str:
        """Of the request whose head is complete, such as ``1.1``."""
        return str(self._inner.get_http_version())

    def get_method(self) -> bytes:
        """Of the request whose head is complete."""
        return bytes(self._inner.get_method())

    def on_message_begin(self) -> None:
        """Called by httptools, like the methods below."""
        if not self._again:
            self._framing = []
            self._target.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._again:
            self._target.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._again:
            if name.lower() in _FRAMING:
                self._framing.append(name + b": " + value + b"\r\n")
            self._target.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._again:
            self._target.on_headers_complete()
        self._again = False

    def on_body(self, body: bytes) -> None:
        self._target.on_body(body)

    def on_message_complete(self) -> None:
        # the body of a request that asks for another protocol is still to come
        if not self._inner.should_upgrade():
            self._target.on_message_complete()
