"""Admission over a real socket: bytes in flight, shares of clients, and crowds that leave."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from service.memory import needed
from service.server.edge.rights import identify
from tests.conftest import Server, connect, serving, wait_until

MINE, YOURS = "my-key-for-these-tests", "your-key-for-these-tests"
MIB = 1 << 20


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Room for four bodies of a mebibyte, two of them for one client, and for little work."""
    log = tmp_path_factory.mktemp("narrow") / "log"
    flags = ["--max-body-bytes", str(MIB), "--max-body-values", "1024"]
    flags += ["--max-inflight-bytes", str(4 * needed(MIB, 1024))]
    flags += ["--queue-tokens", "1500", "--cache-bytes", "0"]
    with serving(log, *flags, "--api-keys", f"{MINE},{YOURS}") as running:
        yield running


def head(key: str, *more: str) -> bytes:
    lines = ("POST /embed HTTP/1.1", "Host: a", "Content-Type: application/json", *more)
    return "\r\n".join((*lines, f"Authorization: Bearer {key}", "", "")).encode()


def answer(opened: socket.socket) -> tuple[int, dict[str, str], str]:
    received = b""
    while b"\r\n\r\n" not in received:
        received += opened.recv(65_536)
    raw, _, body = received.partition(b"\r\n\r\n")
    status, *lines = raw.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    while len(body) < int(headers["content-length"]):
        body += opened.recv(65_536)
    return int(status.split()[1]), headers, body.decode()


def inflight(server: Server) -> float:
    return server.metric("docsplit_inflight_bytes")


def test_bodies_without_room_are_refused_before_they_are_read(narrow: Server) -> None:
    size = MIB - 1000
    with ExitStack() as stack:

        def begin(key: str) -> socket.socket:
            opened = stack.enter_context(closing(connect(narrow)))
            opened.sendall(head(key, f"Content-Length: {size}"))
            return opened

        for _ in range(2):
            begin(MINE).sendall(b'{"inputs": "a')
        wait_until(lambda: inflight(narrow) == 2 * needed(size), 30)
        status, headers, said = answer(begin(MINE))
        assert status == 429
        assert int(headers["retry-after"]) >= 1
        assert json.loads(said)["error_type"] == "Overloaded"
        assert inflight(narrow) == 2 * needed(size)
        # another client gets the room that my bodies left
        yours = begin(YOURS)
        yours.sendall(
            b'{"inputs": "a',
        )
        wait_until(lambda: inflight(narrow) == 3 * needed(size), 30)
        # words of one letter would be more tokens than a document may have
        yours.sendall((b"word " * size)[: size - 15] + b'"}')
        assert answer(yours)[0] == 200
        wait_until(lambda: inflight(narrow) == 2 * needed(size), 30)
    wait_until(lambda: inflight(narrow) == 0, 30)
    key = {"authorization": f"Bearer {MINE}"}
    assert httpx.post(f"{narrow.url}/embed", json={"inputs": "a"}, headers=key).status_code == 200


def test_a_body_of_unknown_length_is_refused_once_the_room_is_full(narrow: Server) -> None:
    size = MIB - 1000
    with ExitStack() as stack:
        for _ in range(2):
            opened = stack.enter_context(closing(connect(narrow)))
            opened.sendall(head(MINE, f"Content-Length: {size}"))
        wait_until(lambda: inflight(narrow) == 2 * needed(size), 30)
        chunked = stack.enter_context(closing(connect(narrow)))
        chunked.sendall(head(MINE, "Transfer-Encoding: chunked"))
        chunked.sendall(b"10000\r\n" + b"a" * 65_536 + b"\r\n")
        status, headers, _ = answer(chunked)
        assert (status, "retry-after" in headers) == (429, True)
        assert inflight(narrow) == 2 * needed(size)
    wait_until(lambda: inflight(narrow) == 0, 30)


def test_titles_and_metadata_of_hits_are_read_only_if_there_is_room(narrow: Server) -> None:
    with httpx.Client(
        base_url=narrow.url, headers={"authorization": f"Bearer {MINE}"}, timeout=60
    ) as client:
        client.put("/indexes/wide", json={}).raise_for_status()
        # 5 MB in all: there is room for the answer, but not for making it
        metadata = {str(key): "a" * 10_000 for key in range(6)}
        for start in range(0, 75, 15):
            documents = [
                {"id": str(number), "text": "sheep", "metadata": metadata}
                for number in range(start, start + 15)
            ]
            client.post("/indexes/wide/documents", json={"documents": documents}).raise_for_status()

        def statuses(top_k: int) -> set[int]:
            body = {"index": "wide", "text": "sheep", "top_k": top_k}
            paths = [("/similar", mode) for mode in ("cosine", "words", "hybrid")]
            paths += [("/passages", mode) for mode in ("cosine", "hybrid")]
            return {client.post(path, json={**body, "mode": m}).status_code for path, m in paths}

        assert statuses(75) == {200}
        size = MIB - 1000
        with closing(connect(narrow)) as opened:
            opened.sendall(head(MINE, f"Content-Length: {size}") + b'{"inputs": "a')
            wait_until(lambda: inflight(narrow) == needed(size), 30)
            assert statuses(5) == {200}
            assert statuses(75) == {429}
        wait_until(lambda: inflight(narrow) == 0, 30)


def test_a_flood_with_one_key_is_refused_and_another_key_is_served(
    narrow: Server, peps: dict[str, str]
) -> None:
    words = peps["pep-8"].split()[:400]
    numbers = itertools.count()
    over = threading.Event()
    statuses: list[int] = []

    def ask(key: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        # all texts differ, because equal windows in flight are computed once
        text = " ".join(random.Random(next(numbers)).sample(words, len(words)))
        return httpx.post(
            f"{narrow.url}/embed", json={"inputs": text}, headers=headers, timeout=120
        )

    def flood() -> None:
        while not over.is_set():
            statuses.append(ask(MINE).status_code)
            # leave the processor to the admitted requests
            over.wait(0.2)

    threads = [threading.Thread(target=flood) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: 429 in statuses, 30)
        served = [ask(YOURS).status_code for _ in range(2)]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert served == [200] * 2
    assert set(statuses) == {200, 429}


def test_neither_key_nor_its_client_is_logged(narrow: Server) -> None:
    key = {"authorization": f"Bearer {YOURS}"}
    assert httpx.post(f"{narrow.url}/embed", json={"inputs": "a"}, headers=key).status_code == 200
    wait_until(lambda: '"route": "/embed"' in narrow.log.read_text(), 30)
    assert YOURS not in narrow.log.read_text()


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ({"client": ("10.0.0.1", 1)}, {"client": ("10.0.0.1", 2)}, True),
        ({"client": ("10.0.0.1", 1)}, {"client": ("10.0.0.2", 1)}, False),
        ({"client": ("2001:db8::1", 1)}, {"client": ("2001:db8::ffff:2", 1)}, True),
        ({"client": ("2001:db8::1", 1)}, {"client": ("2001:db8:0:1::1", 1)}, False),
        ({"client": ("::ffff:10.0.0.1", 1)}, {"client": ("10.0.0.1", 1)}, True),
        ({"client": ("::ffff:10.0.0.1", 1)}, {"client": ("::ffff:10.0.0.2", 1)}, False),
        ({"client": ("10.0.0.1", 1), "docsplit.key": 0}, {"client": ("10.0.0.1", 1)}, False),
        (
            {"client": ("10.0.0.1", 1), "docsplit.key": 0},
            {"client": ("10.0.0.2", 1), "docsplit.key": 0},
            True,
        ),
        ({"client": None}, {}, True),
    ],
)
def test_a_client_is_a_key_or_else_an_address(
    one: dict[str, object], two: dict[str, object], same: bool
) -> None:
    assert (identify(one) == identify(two)) is same


@pytest.mark.parametrize(
    ("flags", "named"),
    [((), "127.0.0.1"), (("--trusted-proxies", "10.0.0.0/8,127.0.0.1"), "192.0.2.7")],
    ids=["nobody", "the peer"],
)
def test_forwarded_addresses_count_only_from_trusted_proxies(
    tmp_path: Path, light: tuple[str, ...], flags: tuple[str, ...], named: str
) -> None:
    with serving(tmp_path / "log", *flags, *light) as server:
        sent = {"x-forwarded-for": "203.0.113.1, 192.0.2.7", "x-request-id": "forwarded"}
        httpx.get(f"{server.url}/info", headers=sent).raise_for_status()
        wait_until(lambda: "forwarded" in server.log.read_text(), 30)
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    [line] = [line for line in lines if line.get("request_id") == "forwarded"]
    assert line["client"] == named


CROWD = 512


def test_a_crowd_that_leaves_at_once_costs_almost_nothing(
    server: Server, peps: dict[str, str]
) -> None:
    words = " ".join(peps.values()).split()
    texts = [" ".join(words[at : at + 800]) for at in range(0, 800 * CROWD, 800)]
    # no other test has put these windows into the cache
    texts = [" ".join(f"{word} crowd" for word in text.split()) for text in texts]

    async def come_and_go() -> float:
        parts = urlsplit(server.url)
        opened = await asyncio.gather(
            *(asyncio.open_connection(parts.hostname, parts.port) for _ in texts)
        )
        for (_, writer), text in zip(opened, texts, strict=True):
            body = json.dumps({"inputs": text}).encode()
            # a slow machine refuses what it cannot compute in the default time
            more = (f"Content-Length: {len(body)}", "x-request-timeout: 600")
            writer.write(head("none", *more) + body)
        waits = functools.partial(server.metric, "docsplit_queue_tokens")
        await asyncio.to_thread(wait_until, lambda: waits() > 60_000, 60)
        before = await asyncio.to_thread(server.metric, "docsplit_tokens_total")
        for _, writer in opened:
            writer.transport.abort()
        return before

    before = asyncio.run(come_and_go())
    probe = httpx.post(f"{server.url}/embed", json={"inputs": "a probe of four words"}, timeout=60)
    assert probe.status_code == 200
    wait_until(lambda: server.metric("docsplit_queue_tokens") == inflight(server) == 0, 30)
    asked = sum(len(text.split()) for text in texts)
    assert asked > 800_000
    assert server.metric("docsplit_tokens_total") - before < asked / 25
