"""When the client sends a request again. The failures are scripted."""

from __future__ import annotations

import asyncio
import copy
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import httpx2
import pytest

from docsplit_client import (
    ApiError,
    AsyncClient,
    Client,
    DeadlineError,
    NotFoundError,
    OverloadedError,
    UnavailableError,
    UnreachableError,
    clients,
)
from docsplit_client.call import Work
from docsplit_client.calls import CALLS

READ = CALLS.index("papers")
CONDITIONAL = CALLS.upsert("papers", [{"id": "a", "text": "b", "if_version": "c"}])
REFUSING = CALLS.upsert("papers", [], on_duplicate="refuse")
PATCH = CALLS.patch_document("papers", "a", {}, if_version="c")
DELETE_MANY = CALLS.delete_documents("papers", ids=["a"])
TRAIN = CALLS.train_citation_head("papers")

Outcome = httpx2.Response | httpx2.TransportError

OK = httpx2.Response(200, json={"name": "papers"})
BUSY = httpx2.Response(429, json={"error": "later"}, headers={"retry-after": "7"})
STARTING = httpx2.Response(503, json={"error": "not ready"}, headers={"retry-after": "1"})
LOST = httpx2.Response(503, json={"error": "the store", "error_type": "Store"})
AWAY = httpx2.Response(
    503, json={"error": "the bucket", "error_type": "Store"}, headers={"retry-after": "5"}
)
PROXY = httpx2.Response(502, text="<html>")
LATE = httpx2.Response(504, json={"error": "deadline"})
GONE = httpx2.Response(404, json={"error": "no document"})
UNSENT = httpx2.ConnectError("refused")
BROKEN = httpx2.ReadError("reset")
SLOW = httpx2.ReadTimeout("slow")
MISSPELT = httpx2.UnsupportedProtocol("htp")


class Script(httpx2.MockTransport):
    """Gives one outcome after the other."""

    def __init__(self, *outcomes: Outcome) -> None:
        super().__init__(self._next)
        self.left = [*outcomes]

    def _next(self, request: httpx2.Request) -> httpx2.Response:
        outcome = self.left.pop(0)
        if isinstance(outcome, httpx2.TransportError):
            raise outcome
        return httpx2.Response(
            outcome.status_code, headers=outcome.headers, content=outcome.content
        )


@contextmanager
def senders(transport: httpx2.MockTransport) -> Iterator[list[Callable[[Work[Any]], object]]]:
    """``send`` of both clients."""

    async def later(call: Work[Any]) -> None:
        async with AsyncClient(http=httpx2.AsyncClient(transport=transport)) as client:
            await client.send(call)

    with Client(http=httpx2.Client(transport=transport)) as client:
        yield [client.send, lambda call: asyncio.run(later(call))]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr("docsplit_client.clients.time.sleep", made.append)
    monkeypatch.setattr("docsplit_client.clients.asyncio.sleep", sleep)
    return made


def send(call: Work[Any], *outcomes: Outcome) -> Any:
    """The result from both clients, which must be the same."""

    async def later() -> Any:
        async with AsyncClient(http=httpx2.AsyncClient(transport=Script(*outcomes))) as client:
            return await client.send(call)

    with Client(http=httpx2.Client(transport=Script(*outcomes))) as client:
        found = client.send(call)
    assert asyncio.run(later()) == found
    return found


@pytest.mark.parametrize(
    ("call", "failure"),
    [(READ, one) for one in (BUSY, STARTING, LOST, AWAY, PROXY, UNSENT, BROKEN)]
    + [
        (one, failure)
        for one in (CONDITIONAL, PATCH, TRAIN)
        for failure in (BUSY, STARTING, UNSENT)
    ],
)
def test_it_sends_again_what_was_not_begun_or_may_be_repeated(
    waits: list[float], call: Work[Any], failure: Outcome
) -> None:
    assert send(call, failure, OK) == {"name": "papers"}
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("call", "failure", "error"),
    [
        *[(READ, LATE, DeadlineError), (READ, GONE, NotFoundError)],
        *[(READ, SLOW, UnreachableError), (READ, MISSPELT, UnreachableError)],
        *[
            (one, failure, UnavailableError)
            for one in (CONDITIONAL, REFUSING, PATCH, TRAIN, DELETE_MANY)
            for failure in (LOST, AWAY)
        ],
        *[(one, PROXY, ApiError) for one in (CONDITIONAL, PATCH, TRAIN)],
        *[(one, BROKEN, UnreachableError) for one in (CONDITIONAL, REFUSING, PATCH, TRAIN)],
    ],
)
def test_it_does_not_repeat_what_may_have_been_done(
    waits: list[float], call: Work[Any], failure: Outcome, error: type[Exception]
) -> None:
    with pytest.raises(error):
        send(call, failure)
    assert waits == []


def test_it_waits_as_long_as_the_service_asks(waits: list[float]) -> None:
    send(READ, BUSY, STARTING, OK)
    assert waits == [7, 1, 7, 1]


def test_it_understands_a_date(waits: list[float]) -> None:
    date = formatdate(time.time() + 30, usegmt=True)
    send(READ, httpx2.Response(503, headers={"retry-after": date}), OK)
    assert all(20 < one <= 31 for one in waits)


@pytest.mark.parametrize("stated", ["soon", "-1", "²", "1e400"])
def test_a_wrong_wait_counts_as_none(waits: list[float], stated: str) -> None:
    send(READ, httpx2.Response(429, headers=[(b"retry-after", stated.encode())]), OK)
    assert all(one <= 0.5 for one in waits)


def test_waits_grow_and_end(waits: list[float]) -> None:
    with pytest.raises(UnreachableError):
        send(READ, *[BROKEN] * 5)
    assert len(waits) == 4
    assert all(0.25 * 2**n <= one <= 0.5 * 2**n for n, one in enumerate(waits))


def test_it_does_not_wait_for_minutes(waits: list[float]) -> None:
    later = httpx2.Response(429, json={"error": "in an hour"}, headers={"retry-after": "3600"})
    with pytest.raises(OverloadedError, match="in an hour") as caught:
        send(READ, later)
    assert caught.value.retry_after == 3600
    assert waits == []


def test_a_deletion_that_an_earlier_try_made_is_no_error(waits: list[float]) -> None:
    delete = CALLS.delete_document("papers", "a")
    assert send(delete, BROKEN, BUSY, GONE) is None
    assert send(delete, AWAY, GONE) is None
    for first in ([], [BUSY], [STARTING], [UNSENT]):
        with pytest.raises(NotFoundError):
            send(delete, *first, GONE)


def test_a_cancelled_job_that_is_gone_has_no_state(waits: list[float]) -> None:
    with pytest.raises(NotFoundError):
        send(CALLS.cancel_job("0" * 32), BROKEN, GONE)


def test_an_answer_of_a_proxy_becomes_an_error(waits: list[float]) -> None:
    with pytest.raises(ApiError, match="a proxy") as caught:
        send(TRAIN, PROXY)
    assert (caught.value.status, caught.value.kind) == (502, "")


@pytest.mark.parametrize("call", [READ, CALLS.embed(["a"]), clients.lines(["a"])])
def test_a_page_of_a_proxy_is_no_result(waits: list[float], call: Work[Any]) -> None:
    page = httpx2.Response(200, html="<html>Sign in</html>")
    with pytest.raises(UnreachableError, match=r"text/html.* not the service's: check its URL"):
        send(call, page)


@pytest.mark.parametrize("content", [{}, [], "text", 1])
def test_other_json_of_a_proxy_is_no_result(waits: list[float], content: Any) -> None:
    with pytest.raises(UnreachableError, match="not the service's"):
        send(CALLS.indexes(), httpx2.Response(200, json=content))


def test_an_answer_that_cannot_be_unpacked_is_an_error_of_the_client(waits: list[float]) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        packed = httpx2.ByteStream(b"none")
        return httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=packed)

    transport = httpx2.MockTransport(answer)

    with senders(transport) as both:
        for send in both:
            with pytest.raises(UnreachableError, match="DecodingError"):
                send(READ)
    assert waits == []


def test_an_error_comes_back_from_another_process(waits: list[float]) -> None:
    with pytest.raises(OverloadedError) as caught:
        send(READ, *[BUSY] * 5)
    for one in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
        assert (type(one), vars(one), str(one)) == (
            OverloadedError,
            vars(caught.value),
            "429: later",
        )


@pytest.mark.parametrize(
    ("key", "sent"), [("dsk-a", "Bearer dsk-a"), (" dsk-a\r\n", "Bearer dsk-a"), ("\n", None)]
)
def test_a_key_is_sent_without_the_end_of_its_line(key: str, sent: str | None) -> None:
    seen: list[str | None] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers.get("authorization"))
        return httpx2.Response(200, json={})

    with Client(key=key, http=httpx2.Client(transport=httpx2.MockTransport(answer))) as client:
        client.info()
    assert seen == [sent]


@pytest.mark.parametrize("key", ["dsk-\u00fc", "dsk-a dsk-b", "dsk-a\ndsk-b"])
@pytest.mark.parametrize("made", [Client, AsyncClient])
def test_what_cannot_be_a_key_is_refused_and_not_repeated(
    made: type[Client] | type[AsyncClient], key: str
) -> None:
    with pytest.raises(ValueError, match="key: an API key") as caught:
        made(key=key)
    assert "dsk" not in str(caught.value)


@pytest.mark.parametrize("parallel", [0, -1])
def test_a_stream_without_requests_is_refused(parallel: int) -> None:
    async def later() -> list[Any]:
        async with AsyncClient() as client:
            return [one async for one in client.embed_stream(["a"], parallel)]

    with Client() as client:
        for attempt in (
            lambda: [*client.embed_stream(["a"], parallel)],
            lambda: asyncio.run(later()),
        ):
            with pytest.raises(ValueError, match="parallel"):
                attempt()
