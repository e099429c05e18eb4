"""What fronts and the engine's process say to each other; the engine is a fake, for faults only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from service.configuration import load
from service.embedding.batching import clients
from service.embedding.batching.batcher import DeadlineError, EngineFailedError, OverloadedError
from service.embedding.cache import lasting
from service.embedding.cache.layers import Source
from service.embedding.engines.interface import EngineFacts
from service.embedding.lookup import Found
from service.server.edge.errors import ApiError
from service.server.lifecycle import Phase, Service
from service.settings import Settings
from service.workers import wire
from service.workers.channel import FrontChannel
from service.workers.client import EngineClient, Status
from service.workers.metrics import Totals, snapshot
from service.workers.supervisor import environment
from tests.conftest import until
from windowing.windows import Ids

FACTS = EngineFacts("onnx-cpu", "f32", "CPU", 2, 64)


@dataclass
class FakeVectors:
    """Raises, waits, or answers with the first and the last token of each window."""

    error: Exception | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0
    queued_tokens: int = 7
    asked: list[tuple[str, bool]] = field(default_factory=list)

    async def get(self, keys: Sequence[bytes], windows: Sequence[Ids], deadline: float) -> Found:
        self.asked.append((clients.current().name, lasting.current()))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        vectors = [
            np.array([ids[0], ids[-1], key[0]], np.float32)
            for key, ids in zip(keys, windows, strict=True)
        ]
        return Found(vectors, [Source.ENGINE, Source.REDIS][: len(keys)], 0.5, 1.5, deadline)


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scenario

    asyncio.run(bounded())


def service_of(vectors: FakeVectors) -> Service:
    settings = load(["--api-keys", "a-key-of-sixteen-characters", "--redis-url", "redis://x:y@z"])
    fake = SimpleNamespace(
        settings=settings,
        bundle=SimpleNamespace(manifest=SimpleNamespace(revision="r")),
        phase=Phase.READY,
        degraded=False,
        calibrated={"reason": "measured"},
        running=SimpleNamespace(vectors=vectors, fresh=vectors, engine=FACTS),
        processor=SimpleNamespace(cores=16),
    )
    return cast(Service, fake)


@asynccontextmanager
async def connected(
    vectors: FakeVectors, told: Callable[[Status | None], None] = lambda _: None
) -> AsyncIterator[tuple[EngineClient, FrontChannel, dict[str, Any]]]:
    ours, theirs = socket.socketpair()
    lane, lane_there = socket.socketpair()

    async def scrape() -> bytes:
        return b"text"

    channel = FrontChannel(service_of(vectors), lane, scrape)
    serving = asyncio.create_task(channel.serve(ours, 3))
    start = await asyncio.to_thread(wire.receive_now, theirs)
    client = EngineClient(told, lambda: [["m", "counter", []]], lambda: 5)
    await client.open(theirs)
    try:
        yield client, channel, start
    finally:
        await client.close()
        await serving
        lane_there.close()


def windows(*lengths: int) -> tuple[list[bytes], list[Ids]]:
    ids = [np.arange(100 * n, 100 * n + length, dtype=np.int32) for n, length in enumerate(lengths)]
    return [bytes([n]) * wire.KEY_BYTES for n in range(len(lengths))], ids


@pytest.mark.parametrize("lengths", [(), (1,), (3, 1, 512), (2, 2)])
def test_windows_come_back_as_they_were(lengths: tuple[int, ...]) -> None:
    keys, ids = windows(*lengths)
    again_keys, again = wire.unpack_windows(len(ids), b"".join(wire.pack_windows(keys, ids)))
    assert again_keys == keys
    assert [part.tolist() for part in again] == [part.tolist() for part in ids]


def test_an_answer_comes_back_whole() -> None:
    async def scenario() -> None:
        vectors = FakeVectors()
        vectors.gate.set()
        async with connected(vectors) as (client, _, _):
            found = await client.get(*windows(3, 2), 12.25, cached=True)
            assert [vector.tolist() for vector in found.vectors] == [[0, 2, 0], [100, 101, 1]]
            assert found.sources == [Source.ENGINE, Source.REDIS]
            assert (found.looking, found.queued, found.computing) == (0.5, 1.5, 12.25)
            assert await client.scrape() == b"text"

    run(scenario())


def test_the_engine_is_told_whose_work_it_is_and_whether_it_lasts() -> None:
    async def scenario() -> None:
        vectors = FakeVectors()
        vectors.gate.set()
        async with connected(vectors) as (client, _, _):
            with clients.working_for(clients.Client("key a")), lasting.work():
                await client.get(*windows(3), 1.0, cached=True)
            await client.get(*windows(3), 1.0, cached=True)
        assert vectors.asked == [("key a", True), ("", False)]

    run(scenario())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OverloadedError(7.5), OverloadedError),
        (DeadlineError(), DeadlineError),
        (EngineFailedError("RuntimeError in the engine"), EngineFailedError),
        (KeyError("of nobody's"), RuntimeError),
    ],
)
def test_errors_are_carried_as_they_are(error: Exception, kind: type[Exception]) -> None:
    async def scenario() -> None:
        vectors = FakeVectors(error)
        vectors.gate.set()
        async with connected(vectors) as (client, _, _):
            with pytest.raises(kind) as raised:
                await client.get(*windows(3), 1.0, cached=True)
            if isinstance(error, OverloadedError):
                assert cast(OverloadedError, raised.value).retry_after == 7.5
            if isinstance(error, EngineFailedError):
                assert str(raised.value) == str(error)
            vectors.error = None
            assert len((await client.get(*windows(3), 1.0, cached=True)).vectors) == 1

    run(scenario())


def test_giving_up_one_question_drops_that_work_alone() -> None:
    async def scenario() -> None:
        vectors = FakeVectors()
        async with connected(vectors) as (client, _, _):
            given_up = asyncio.create_task(client.get(*windows(3), 1.0, cached=True))
            kept = asyncio.create_task(client.get(*windows(4), 1.0, cached=False))
            await asyncio.sleep(0.05)
            assert vectors.cancelled == 0
            given_up.cancel()
            await until(lambda: vectors.cancelled > 0)
            vectors.gate.set()
            assert len((await kept).vectors) == 1
            assert vectors.cancelled == 1

    run(scenario())


def test_a_front_that_is_gone_leaves_no_work() -> None:
    async def scenario() -> None:
        vectors = FakeVectors()
        async with connected(vectors) as (client, _, _):
            asking = asyncio.create_task(client.get(*windows(3), 1.0, cached=True))
            await asyncio.sleep(0.05)
        await until(lambda: vectors.cancelled > 0)
        with pytest.raises(ApiError) as raised:
            await asking
        assert raised.value.status == 503

    run(scenario())


def test_settings_arrive_with_their_secrets_and_state_follows() -> None:
    async def scenario() -> None:
        told: list[Status | None] = []
        async with connected(FakeVectors(), told.append) as (_, channel, start):
            settings = Settings(**start["settings"])
            assert settings.model_dump() == channel._service.settings.model_dump()
            assert settings.api_keys[0].get_secret_value() == "a-key-of-sixteen-characters"
            assert "a-key" not in repr(settings)
            assert (start["worker"], start["revision"]) == (3, "r")
            before = channel.seen
            channel.tell(closing=False)
            await until(lambda: channel.came_up)
            assert told == [Status(Phase.READY, False, False, 7, FACTS, {"reason": "measured"})]
            assert (channel.seen > before, channel.open) == (True, -5)
            await channel.count()
            assert channel.snapshot == [["m", "counter", []]]
        assert told[-1] is None

    run(scenario())


class Counts:
    """A process's metrics."""

    def __init__(self, count: float, gauge: float) -> None:
        self.registry = CollectorRegistry()
        counter = Counter("asked_total", "Help", ("route",), registry=self.registry)
        counter.labels("/a").inc(count)
        Gauge("waiting", "Help", registry=self.registry).set(gauge)
        Gauge("process_max_fds", "Help", registry=self.registry).set(10)


def test_no_counter_falls_when_a_process_ends() -> None:
    def lines(*fronts: Counts) -> list[str]:
        text = generate_latest(totals.sum(snapshot(front.registry) for front in fronts)).decode()
        return [line for line in text.splitlines() if line[0] != "#" and "_created" not in line]

    totals = Totals(Counts(1, 1).registry)
    one, two = Counts(10, 100), Counts(20, 200)
    assert lines(one, two) == [
        'asked_total{route="/a"} 31.0',
        "waiting 301.0",
        "process_max_fds 10.0",
    ]
    totals.depart(snapshot(one.registry))
    assert lines(two) == ['asked_total{route="/a"} 31.0', "waiting 201.0", "process_max_fds 10.0"]
    assert lines(two, Counts(5, 0))[0] == 'asked_total{route="/a"} 36.0'


def test_a_front_computes_on_one_thread_unless_told_otherwise() -> None:
    service = service_of(FakeVectors())
    object.__setattr__(service.settings, "workers", 4)
    given = environment({"OMP_NUM_THREADS": "3", "HOME": "/h"}, service)
    assert (given["OMP_NUM_THREADS"], given["OPENBLAS_NUM_THREADS"]) == ("3", "1")
    assert (given["LANCE_CPU_THREADS"], given["HOME"]) == ("4", "/h")
