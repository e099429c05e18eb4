"""Answers in parts: the same bytes, and a request lasts until its client has read them."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from starlette.responses import Response, StreamingResponse
from starlette.types import Message

from service.server.bodies.encoding import writing
from service.server.edge.bodies import Inflight
from service.server.edge.layer import PART, Exchange

CAPACITY = 64 * PART


async def _nothing() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


class Client:
    """Records what it is sent; reads on command."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.began = asyncio.Event()
        self.reads = asyncio.Event()
        self.answered = 0
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/embed",
            "headers": [],
        }
        self.exchange = Exchange(self.scope, _nothing, self.send)

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.began.set()
            await self.reads.wait()

    def done(self) -> None:
        self.answered += 1

    async def take(self, answer: Response, inflight: Inflight) -> None:
        with inflight.body() as room:
            self.exchange.room, self.exchange.answered = room, self.done
            await answer(self.scope, _nothing, self.exchange.send)

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 3 * PART + 7])
async def test_the_parts_are_the_answer(size: int) -> None:
    content = bytes(number % 251 for number in range(size))

    client = Client()
    client.reads.set()
    await client.take(Response(content), Inflight(CAPACITY))
    assert client.body == content
    assert all(len(message["body"]) <= PART for message in client.sent[1:])
    ends = [not message.get("more_body", False) for message in client.sent[1:]]
    assert ends == [False] * (len(ends) - 1) + [True]
    assert client.answered == 1


async def test_a_stream_stays_a_stream() -> None:
    client = Client()
    client.reads.set()
    pieces = (bytes([number]) * (PART + number) for number in range(3))
    await client.take(StreamingResponse(pieces), Inflight(CAPACITY))
    assert client.body == b"".join(bytes([number]) * (PART + number) for number in range(3))
    assert client.answered == 1


async def test_the_memory_is_held_until_the_client_has_read() -> None:
    inflight = Inflight(CAPACITY)
    client = Client()
    task = asyncio.create_task(client.take(Response(bytes(10 * PART)), inflight))
    await client.began.wait()
    assert inflight.total == 10 * PART
    # the time of the service ends before the client reads
    assert client.answered == 1
    assert client.exchange.ready is not None
    client.reads.set()
    await task
    assert inflight.total == 0


async def test_the_next_request_of_a_client_finds_the_memory_of_the_last_one_released() -> None:
    inflight = Inflight(CAPACITY)
    client = Client()
    client.reads.set()
    with inflight.body() as room:
        room.reach(CAPACITY // 2)
        client.exchange.room = room
        await Response(b"vectors")(client.scope, _nothing, client.exchange.send)
        # the last request has not ended, but its client has the answer
        with inflight.body() as following:
            following.reach(CAPACITY // 2)
    assert inflight.total == 0


async def test_an_answer_without_room_becomes_429() -> None:
    inflight = Inflight(CAPACITY)
    client = Client()
    client.reads.set()
    with inflight.body() as other:
        other.reach(CAPACITY // 2)
        await client.take(Response(bytes(10 * PART)), inflight)
    assert client.sent[0]["status"] == 429
    assert b"memory" in client.body
    assert len(client.sent) == 2


async def test_the_largest_answer_is_sent_to_a_client_without_other_requests() -> None:
    client = Client()
    client.reads.set()
    await client.take(Response(bytes(2 * CAPACITY)), Inflight(CAPACITY))
    assert client.sent[0]["status"] == 200
    assert len(client.body) == 2 * CAPACITY


async def test_few_large_answers_are_written_at_once() -> None:
    inside = 0
    ends = asyncio.Event()
    large, small = np.zeros((1000, 384), np.float32), np.zeros((1, 384), np.float32)

    async def write() -> None:
        nonlocal inside
        async with writing(large):
            inside += 1
            await ends.wait()

    tasks = [asyncio.create_task(write()) for _ in range(10)]
    await asyncio.sleep(0)
    assert inside == 4
    # a small answer does not wait, even in six forms
    async with writing(small, 6):
        assert inside == 4
    ends.set()
    await asyncio.gather(*tasks)
    assert inside == 10
