"""The cache computes nothing twice; a slow, frozen, damaged or lost Redis only costs speed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import redis

from docsplit.windowing.pooling import Vectors, normalise
from service.embedding.cache.codec import Codec
from service.embedding.cache.layers import FEW_WINDOWS, Cache, ProcessCache, Source
from service.embedding.cache.shared import Breaker, SharedCache
from tests.conftest import Server, serving, wait_until
from tests.redis_server import RedisServer

WIDE = 8
CODEC = Codec(WIDE)


def vector(seed: int) -> Vectors:
    return normalise(np.random.default_rng(seed).normal(size=(1, WIDE)).astype(np.float32))[0]


def rows(keys: Sequence[bytes]) -> Vectors:
    return np.stack([vector(int(key)) for key in keys])


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.close()


def test_the_process_layer_is_bounded_and_evicts_the_least_used() -> None:
    cache = ProcessCache(4 * (WIDE * 4 + 450))
    keys = [str(i).encode() for i in range(6)]
    for key in keys[:4]:
        cache.put([key], rows([key]))
    assert cache.get(keys[:1])[0] is not None
    for key in keys[4:]:
        cache.put([key], rows([key]))
    held = [value is not None for value in cache.get(keys)]
    assert held == [True, False, False, True, True, True]
    assert cache.held_bytes <= 4 * (WIDE * 4 + 450)


async def test_identical_windows_in_flight_are_computed_once() -> None:
    calls: list[list[bytes]] = []

    async def compute(keys: Sequence[bytes]) -> Vectors:
        calls.append(list(keys))
        await asyncio.sleep(0.05)
        return rows(keys)

    cache = Cache(ProcessCache(0))
    first, second = await asyncio.gather(
        cache.get([b"1", b"2", b"2"], compute), cache.get([b"2", b"3"], compute)
    )
    assert second[b"2"][1] is Source.FLIGHT
    assert first[b"2"][0].tolist() == second[b"2"][0].tolist() == vector(2).tolist()
    await cache.get([b"2"], compute)
    # the last call is the control: nothing is in flight or kept any more
    assert calls == [[b"1", b"2"], [b"3"], [b"2"]]


async def test_a_short_request_does_not_wait_for_a_long_one() -> None:
    calls: list[int] = []
    landed = asyncio.Event()

    async def compute(keys: Sequence[bytes]) -> Vectors:
        calls.append(len(keys))
        await (landed.wait() if len(keys) > 1 else asyncio.sleep(0.05))
        return rows(keys)

    cache = Cache(ProcessCache(0))
    many = [str(number).encode() for number in range(FEW_WINDOWS + 1)]
    long = asyncio.create_task(cache.get(many, compute))
    await asyncio.sleep(0)
    short, again = await asyncio.wait_for(
        asyncio.gather(cache.get(many[:1], compute), cache.get(many[:1], compute)), 5
    )
    assert short[b"0"][1] is Source.ENGINE
    assert again[b"0"][1] is Source.FLIGHT
    assert calls == [len(many), 1]
    # the control: five windows are more than a quarter of the long request's
    nearly = asyncio.create_task(cache.get(many[1:6], compute))
    await asyncio.sleep(0)
    landed.set()
    assert (await long)[b"0"][1] is Source.ENGINE
    assert {source for _, source in (await nearly).values()} == {Source.FLIGHT}
    assert calls == [len(many), 1]
    assert not cache._flights


async def test_a_waiting_request_takes_over_a_cancelled_computation() -> None:
    started = 0

    async def compute(keys: Sequence[bytes]) -> Vectors:
        nonlocal started
        started += 1
        if started == 1:
            await asyncio.sleep(60)
        return rows(keys)

    cache = Cache(ProcessCache(0))
    gone = asyncio.create_task(cache.get([b"1"], compute))
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(cache.get([b"1"], compute))
    await asyncio.sleep(0.01)
    gone.cancel()
    found = await asyncio.wait_for(waiting, 5)
    assert found[b"1"][1] is Source.ENGINE
    with pytest.raises(asyncio.CancelledError):
        await gone


def test_the_breaker_opens_rests_and_closes() -> None:
    now = 0.0
    breaker = Breaker(failures=2, rest=1, longest=4, clock=lambda: now)
    breaker.failed()
    assert breaker.admits()
    breaker.failed()
    assert not breaker.closed
    assert not breaker.admits()
    now = 1.5
    assert breaker.admits()
    assert not breaker.admits(), "one caller at a time tries"
    breaker.failed()
    now = 3
    assert not breaker.admits(), "the rest has doubled"
    now = 4
    assert breaker.admits()
    breaker.succeeded()
    assert breaker.closed


@asynccontextmanager
async def shared(url: str) -> AsyncIterator[tuple[SharedCache, list[str]]]:
    """A cache in Redis, and its errors."""
    errors: list[str] = []
    cache = SharedCache(url, prefix="t:", codec=CODEC, ttl=60, timeout=0.1, on_error=errors.append)
    try:
        yield cache, errors
    finally:
        await cache.close()


async def written(cache: SharedCache, keys: list[bytes]) -> list[Vectors | None]:
    for _ in range(100):
        found = await cache.get(keys)
        if all(value is not None for value in found):
            return found
        await asyncio.sleep(0.02)
    raise AssertionError("the write never arrived")


async def test_redis_stores_vectors_with_an_expiry(redis_server: RedisServer) -> None:
    async with shared(redis_server.url) as (cache, errors):
        assert await cache.get([b"1", b"2"]) == [None, None]
        cache.put([b"1", b"2"], rows([b"1", b"2"]))
        found = await written(cache, [b"1", b"2"])
        assert found[1] == pytest.approx(vector(2), abs=1e-3)
        assert 0 < redis_server.client.ttl("t:1") <= 60
        redis_server.client.set("t:1", b"damaged")
        assert (await cache.get([b"1"])) == [None]
        assert errors == ["damaged"]


async def test_a_server_without_hello_serves_the_cache(tmp_path: Path) -> None:
    # as Redis before 6, and proxies that know only the older protocol
    server = RedisServer(tmp_path, "--rename-command", "HELLO", "")
    with pytest.raises(redis.ResponseError, match="HELLO"):
        redis.Redis(port=server.port, protocol=3).ping()
    try:
        async with shared(server.url) as (cache, errors):
            cache.put([b"1"], rows([b"1"]))
            await written(cache, [b"1"])
            assert errors == []
    finally:
        server.kill()


async def test_a_huge_value_or_one_of_another_type_does_not_affect_others(
    redis_server: RedisServer,
) -> None:
    huge = 20_000_000
    client = redis_server.client

    def sent() -> int:
        return int(client.info("stats")["total_net_output_bytes"])

    async with shared(redis_server.url) as (cache, errors):
        cache.put([b"1"], rows([b"1"]))
        await written(cache, [b"1"])
        client.set("t:2", bytes(huge))
        client.rpush("t:3", "a list")
        before = sent()
        found = await cache.get([b"1", b"2", b"3"])
        assert sent() - before < huge / 100
        assert [value is not None for value in found] == [True, False, False]
        assert errors == ["damaged", "damaged"]
        assert cache.healthy
        # the control: a client that reads the value whole receives all of it
        client.get("t:2")
        assert sent() - before > huge


async def test_a_frozen_redis_costs_little_and_is_used_again_later(
    redis_server: RedisServer,
) -> None:
    async with shared(redis_server.url) as (cache, errors):
        cache.put([b"1"], rows([b"1"]))
        await written(cache, [b"1"])
        redis_server.freeze()
        for _ in range(50):
            assert await asyncio.wait_for(cache.get([b"1"]), 1) == [None]
        assert not cache.healthy
        # the breaker prevented most of the fifty calls
        assert len(errors) < 10
        redis_server.thaw()
        await written(cache, [b"1"])
        assert cache.healthy


async def test_a_redis_that_is_back_is_noticed_without_requests(redis_server: RedisServer) -> None:
    async with shared(redis_server.url) as (cache, errors):
        redis_server.kill()
        for _ in range(3):
            await cache.get([b"1"])
        assert not cache.healthy
        redis_server.start()
        await asyncio.to_thread(wait_until, lambda: cache.healthy, 20)
        assert set(errors) == {"read"}


async def test_a_full_redis_still_answers_reads(redis_server: RedisServer) -> None:
    async with shared(redis_server.url) as (cache, errors):
        cache.put([b"1"], rows([b"1"]))
        await written(cache, [b"1"])
        redis_server.client.config_set("maxmemory", "1")
        cache.put([b"2"], rows([b"2"]))
        async with asyncio.timeout(10):
            await cache._writes.join()
        assert errors == ["write"]
        assert cache.healthy
        assert (await cache.get([b"1"]))[0] is not None


def embed(server: Server, text: str) -> httpx.Response:
    answer = httpx.post(f"{server.url}/embed", json={"inputs": text}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


def degraded(server: Server) -> bool:
    answer = httpx.get(f"{server.url}/readyz")
    assert answer.status_code == 200
    return bool(answer.json()["degraded"])


def test_replicas_share_vectors_and_survive_the_loss_of_redis(
    redis_server: RedisServer, tmp_path: Path, light: tuple[str, ...]
) -> None:
    flags = ("--redis-url", redis_server.url, "--cache-bytes", "0", *light)
    with serving(tmp_path / "one", *flags) as one, serving(tmp_path / "two", *flags) as two:
        first = embed(one, "a text that two replicas see")
        assert first.headers["x-cache"] == "miss"
        wait_until(lambda: redis_server.client.dbsize() == 1, 20)
        second = embed(two, "a text that two replicas see")
        assert second.headers["x-cache"] == "hit"
        # docs/reference/api/embed.md publishes this tolerance
        assert second.json()[0] == pytest.approx(first.json()[0], abs=2e-4)

        redis_server.kill()
        for number in range(8):
            embed(one, f"redis is gone, text {number}")
        assert degraded(one)
        redis_server.start()
        wait_until(lambda: embed(one, f"{time.monotonic()}").is_success and not degraded(one), 20)

        redis_server.freeze()
        for number in range(8):
            embed(two, f"redis is frozen, text {number}")
        redis_server.thaw()
        assert "redis://" not in one.log.read_text()
