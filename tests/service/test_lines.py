"""Bulk embedding by lines of JSON."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from service.embedding.embedder import Document, Embedded
from service.errors import (
    EngineFailedError,
    ForbiddenError,
    OverloadedError,
    ServiceError,
    SlowBodyError,
    TooLargeError,
    UnavailableError,
)
from service.keys.ring import Refusal
from service.metrics import Metrics
from service.server import lines as lines_module
from service.server.edge.bodies import Inflight
from service.server.edge.rights import next_request
from service.server.lines import (
    BATCH_LINES,
    MOST_BATCHES,
    BodyLines,
    Line,
    LineAnswers,
    LineOptions,
    Lines,
    Splitter,
    batched,
)
from tests.conftest import Server, connect, until, wait_until

NDJSON = {"content-type": "application/x-ndjson"}


def results(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines()]


def test_lines_get_the_vectors_of_ordinary_requests(server: Server) -> None:
    texts = [f"Line {number} speaks of wool." for number in range(3 * BATCH_LINES)]
    sent = [json.dumps(text if at % 2 else {"inputs": text}) for at, text in enumerate(texts)]
    wrong = ["[1, 2]", '{"inputs": 3}', '""', '"no json', '"\\ud800"', '{"normalize": false}']
    body = "\n \r\n".join([*sent[:70], *wrong, *sent[70:]])
    answer = httpx.post(
        f"{server.url}/embed?dimensions=8&encoding_format=base64", content=body, headers=NDJSON
    )
    assert (answer.status_code, answer.headers["content-type"]) == (200, NDJSON["content-type"])
    *found, last = results(answer.content)
    assert [one["index"] for one in found] == list(range(len(texts) + len(wrong)))
    right = httpx.post(
        f"{server.url}/embed",
        json={"inputs": texts, "dimensions": 8, "encoding_format": "base64"},
    )
    assert [one["embedding"] for one in found if "embedding" in one] == right.json()
    errors = found[70 : 70 + len(wrong)]
    assert [one["status"] for one in errors] == [422, 422, 400, 400, 400, 422]
    assert errors[2]["code"] == "empty_input"
    assert "query" in errors[5]["error"]
    assert last == {"lines": 198, "errors": 6, "tokens": int(right.headers["x-compute-tokens"])}
    inputs = {"inputs": ["a", "", "b"], "dimensions": 8}
    answer = httpx.post(
        f"{server.url}/embed", json=inputs, headers={"accept": NDJSON["content-type"]}
    )
    assert [one.get("status") for one in results(answer.content)] == [None, 400, None, None]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("dimensions=385", "dimensions"),
        ("encoding_format=x", "encoding"),
        ("prompt_name=x", "prom"),
        ("windows=true", "send JSON"),
        ("dimension=2", "did you mean dimensions?"),
    ],
)
def test_a_wrong_option_is_an_ordinary_error(server: Server, query: str, named: str) -> None:
    answer = httpx.post(f"{server.url}/embed?{query}", content=b'"a"', headers=NDJSON)
    assert answer.status_code == 422
    assert named in answer.json()["error"]


def test_a_line_without_its_field_gets_the_form(server: Server) -> None:
    answer = httpx.post(f"{server.url}/embed", content=b'{"text": "a"}', headers=NDJSON)
    assert results(answer.content)[0]["error"] == (
        'inputs: the line has no such field: send a JSON string, or an object {"inputs": "…"}, in '
        "UTF-8"
    )


@pytest.mark.parametrize(("media", "status"), [("x-ndjson", b"400"), ("json", b"200")])
def test_a_client_of_http_1_0_gets_no_chunks(server: Server, media: str, status: bytes) -> None:
    head = f"POST /embed HTTP/1.0\r\ncontent-type: application/{media}\r\ncontent-length: "
    with connect(server) as connection:
        connection.sendall(head.encode() + b'19\r\n\r\n{"inputs": "wool."}')
        with connection.makefile("rb") as answer:
            received = answer.read()
    assert received.startswith(b"HTTP/1.1 " + status)
    assert b"transfer-encoding" not in received
    assert (b"proxy_http_version" in received) == (status == b"400")


def test_options_of_lines_do_not_count_for_a_json_body(server: Server) -> None:
    answer = httpx.post(f"{server.url}/embed?dimensions=2", json={"inputs": "a"})
    assert answer.status_code == 422
    said = answer.json()["error"]
    assert said == "query.dimensions: only for application/x-ndjson; put it into the body"
    answer = httpx.post(f"{server.url}/embed?windows=true", json={"inputs": "a"})
    assert answer.status_code == 422
    assert answer.json()["error"] == "query.windows: put it into the body"
    # other servers ignore what they do not know
    assert httpx.post(f"{server.url}/embed?x=2", json={"inputs": "a"}).status_code == 200


def open_stream(server: Server) -> socket.socket:
    connection = connect(server)
    head = "POST /embed?dimensions=4 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
    connection.sendall(f"{head}content-type: application/x-ndjson\r\n\r\n".encode())
    return connection


def chunk(text: str) -> bytes:
    line = json.dumps(text).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


def test_a_client_may_wait_for_each_answer(server: Server) -> None:
    with open_stream(server) as connection, connection.makefile("rb") as answer:
        for number in range(3):
            connection.sendall(chunk(f"text {number}"))
            while b'"index":%d,' % number not in answer.readline():
                pass
        assert server.metric("docsplit_line_streams") == 1
        connection.sendall(b"0\r\n\r\n")
        while b'{"lines":3,"errors":0' not in answer.readline():
            pass


def test_nothing_is_left_of_a_client_that_leaves(server: Server) -> None:
    with open_stream(server) as connection:
        connection.sendall(chunk("one text") * 200)
        wait_until(lambda: server.metric("docsplit_inflight_bytes") > 0, 10)
    wait_until(lambda: server.metric("docsplit_line_streams") == 0, 10)
    wait_until(lambda: server.metric("docsplit_inflight_bytes") == 0, 10)


@given(st.lists(st.sampled_from([b"a", b"bb", b"\n", b" ", b"\r\n", b"cccc"]), max_size=30))
def test_pieces_of_any_size_give_the_same_lines(parts: list[bytes]) -> None:
    def check(size: int) -> None:
        if size > 6:
            raise TooLargeError("long")

    splitter = Splitter(check)
    found = [line for part in parts for line in splitter.feed(part)]
    found += splitter.end()
    whole = b"".join(parts).split(b"\n")
    expected = [413 if len(line) > 6 else line.strip() for line in whole]
    assert [one if isinstance(one, bytes) else one.status for one in found] == [
        one for one in expected if one
    ]


def test_the_rest_of_a_long_line_is_skipped() -> None:
    def check(size: int) -> None:
        if size > 6:
            raise TooLargeError("long")

    splitter = Splitter(check)
    found = [*splitter.feed(b"1\n23456"), *splitter.feed(b"789"), *splitter.feed(b"0123\n4")]
    assert [one if isinstance(one, bytes) else one.status for one in [*found, *splitter.end()]] == [
        b"1",
        413,
        b"4",
    ]


def body_of(
    *pieces: bytes, seconds: float = 0.0, stopping: Callable[[], bool] = lambda: False
) -> BodyLines:
    """A body of which no more than the pieces arrives."""
    waiting = list(pieces)

    async def receive() -> Message:
        if not waiting:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": waiting.pop(0), "more_body": True}

    async def read(line: bytes) -> str:
        return line.decode()

    with Inflight(1 << 30).body() as room:
        return BodyLines(receive, read, room, 1000, seconds, stopping)


async def texts_of(body: BodyLines, found: list[object]) -> None:
    async for batch in body.batches():
        found += [line.text for line in batch]


@pytest.mark.parametrize("pieces", [[b"a\n"], [b"a\n", b"b"], [b"a\n", b"\n", b" \n"]])
def test_a_stream_without_progress_ends(
    pieces: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "PAUSE", 0.001)
    found: list[object] = []
    with pytest.raises(SlowBodyError):
        asyncio.run(texts_of(body_of(*pieces), found))
    assert found == ["a"]


def test_a_service_that_stops_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "PAUSE", 0.001)
    found: list[object] = []
    with pytest.raises(UnavailableError):
        asyncio.run(texts_of(body_of(b"a\n", seconds=60, stopping=lambda: bool(found)), found))
    assert found == ["a"]


class Gate:
    """Stands for the engine: every batch waits until the gate is open."""

    def __init__(self) -> None:
        self.begun = 0
        self.open = asyncio.Event()
        self.service: Any = SimpleNamespace(
            metrics=Metrics(), settings=SimpleNamespace(max_batch_items=10**9)
        )
        self.options = LineOptions(dimensions=None)
        self.usage: Counter[str] = Counter()
        self.seconds = 60.0

    async def embed(self, texts: Sequence[str]) -> list[ServiceError]:
        self.begun += 1
        await self.open.wait()
        return [ServiceError("none")] * len(texts)


async def endless() -> AsyncIterator[Line]:
    for index in range(100 * BATCH_LINES):
        yield Line(index, "a")


async def unread() -> Message:
    raise AssertionError


def answers(lines: Any, batches: AsyncIterator[list[Line]], held: int) -> LineAnswers:
    return LineAnswers(lines, batches, most_held=held)


async def test_a_reader_that_stops_stops_the_work() -> None:
    gate = Gate()
    reads = asyncio.Event()
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)
        await reads.wait()

    stream = answers(gate, batched(endless()), 0)
    task = asyncio.create_task(stream({}, unread, send))
    await until(lambda: gate.begun == MOST_BATCHES)
    gate.open.set()
    # the first batch has its results; the client does not read them
    await until(lambda: bool(sent))
    for _ in range(20):
        await asyncio.sleep(0)
    assert gate.begun == MOST_BATCHES
    reads.set()
    await task
    assert gate.begun == 100
    body = b"".join(message.get("body", b"") for message in sent)
    assert results(body)[-1]["lines"] == results(body)[-1]["errors"] == 100 * BATCH_LINES


async def test_an_error_in_the_middle_ends_the_answer_with_a_line() -> None:
    async def broken() -> AsyncIterator[list[Line]]:
        yield [Line(0, "a")]
        raise SlowBodyError("the next line did not arrive in time")

    gate = Gate()
    gate.open.set()
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await answers(gate, broken(), 1 << 20)({}, unread, send)
    start, *bodies = sent
    assert start["status"] == 200
    [first, last] = results(b"".join(message["body"] for message in bodies))
    assert first["index"] == 0
    assert (last["lines"], last["status"], last["error_type"]) == (1, 408, "Timeout")
    assert not bodies[-1].get("more_body", False)


def lines_over(embed: Callable[..., Coroutine[Any, Any, Embedded]]) -> Lines:
    running = SimpleNamespace(embedder=SimpleNamespace(embed=embed))
    manifest = SimpleNamespace(default_prompt=None)
    encoder: Any = SimpleNamespace(name="fake", manifest=manifest)

    async def loaded(_: object) -> object:
        return running

    service: Any = SimpleNamespace(
        ready=True,
        metrics=Metrics(),
        running=running,
        encoders=SimpleNamespace(running=loaded),
    )
    return Lines(service, encoder, LineOptions(dimensions=None), 60.0)


async def test_a_text_at_fault_fails_without_the_others() -> None:
    async def embed(texts: Sequence[str], *_: object, **options: object) -> Embedded:
        if "bad" in texts:
            raise EngineFailedError("engine")
        return Embedded([Document(1, 1, []) for _ in texts])

    found = await lines_over(embed).embed(["a", "bad", "c"])
    assert [getattr(one, "status", 200) for one in found] == [200, 500, 200]


async def test_a_full_queue_delays_lines() -> None:
    tries: list[int] = []

    async def embed(texts: Sequence[str], *_: object, **options: object) -> Embedded:
        tries.append(len(texts))
        if len(tries) < 3:
            raise OverloadedError(0.001)
        return Embedded([Document(1, 1, []) for _ in texts])

    [found] = await lines_over(embed).embed(["a"])
    assert isinstance(found, Document)
    assert tries == [1, 1, 1]


async def test_a_revoked_key_reads_no_more_and_a_rate_delays() -> None:
    verdicts = [(Refusal.RATE, 0.001), (None, 0.0), (Refusal.REVOKED, 0.0)]

    def check() -> Any:
        refusal, wait = verdicts.pop(0)
        return SimpleNamespace(refusal=refusal, wait=wait)

    scope = {"docsplit.check": check}
    await next_request(scope)
    assert len(verdicts) == 1
    with pytest.raises(ForbiddenError):
        await next_request(scope)
    # a service without keys
    await next_request({})
