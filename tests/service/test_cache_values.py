"""Values from Redis: checked, authenticated, and never stored without authentication."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest

from docsplit.windowing.pooling import Vectors, normalise
from service.embedding.cache import layers
from service.embedding.cache.codec import Codec, Fault
from service.embedding.cache.layers import Cache, ProcessCache, Source
from service.embedding.cache.shared import SharedCache
from tests.conftest import Server, serving, wait_until
from tests.redis_server import RedisServer

WIDE = 8
SECRET = "thirty-two characters at the least"
PLAIN = Codec(WIDE)
SIGNED = Codec(WIDE, SECRET)


def vector(seed: int, wide: int = WIDE) -> Vectors:
    return normalise(np.random.default_rng(seed).normal(size=(1, wide)).astype(np.float32))[0]


def rows(keys: Sequence[bytes]) -> Vectors:
    return np.stack([vector(int(key)) for key in keys])


@pytest.mark.parametrize("codec", [PLAIN, SIGNED])
def test_unpacked_vectors_have_fp16_precision(codec: Codec) -> None:
    one = vector(1)
    again = codec.unpack(b"a", codec.pack(b"a", one))
    assert again == pytest.approx(one, abs=1e-3)
    assert np.linalg.norm(again) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dimensions", [1, 384, 4096])
def test_rounding_to_fp16_keeps_within_the_tolerated_length(dimensions: int) -> None:
    codec = Codec(dimensions)
    for seed in range(50):
        value = codec.pack(b"a", vector(seed, dimensions))
        assert not isinstance(codec.unpack(b"a", value), Fault)


@pytest.mark.parametrize("codec", [PLAIN, SIGNED])
def test_every_flipped_bit_is_noticed(codec: Codec) -> None:
    whole = codec.pack(b"a", vector(1))
    for bit in range(8 * len(whole)):
        value = bytearray(whole)
        value[bit // 8] ^= 1 << bit % 8
        assert isinstance(codec.unpack(b"a", bytes(value)), Fault), bit


def former(one: Vectors) -> bytes:
    """The format of earlier versions."""
    body = one.astype("<f2").tobytes()
    return zlib.crc32(body).to_bytes(4, "little") + body


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"abc",
        PLAIN.pack(b"a", vector(1))[:-2],
        PLAIN.pack(b"a", vector(1)) + b"xx",
        PLAIN.pack(b"a", np.full(WIDE, np.nan, np.float32)),
        PLAIN.pack(b"a", np.array([np.inf] + [0] * (WIDE - 1), np.float32)),
        PLAIN.pack(b"a", np.zeros(WIDE, np.float32)),
        PLAIN.pack(b"a", 2 * vector(1)),
        PLAIN.pack(b"b", vector(1)),
        SIGNED.pack(b"a", vector(1)),
        former(vector(1)),
        7,
        "text",
        [PLAIN.pack(b"a", vector(1))],
        RuntimeError("an error in a list"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_of_another_form_or_name_is_damaged(value: object) -> None:
    assert PLAIN.unpack(b"a", value) is Fault.DAMAGED


def test_without_the_secret_no_value_passes() -> None:
    assert isinstance(SIGNED.unpack(b"a", SIGNED.pack(b"a", vector(1))), np.ndarray)
    other = Codec(WIDE, SECRET + "!")
    assert other.label != SIGNED.label
    for forged in (
        SIGNED.pack(b"b", vector(1)),
        other.pack(b"a", vector(1)),
        PLAIN.pack(b"a", vector(1)),
        b"\x02" + PLAIN.pack(b"a", vector(1))[1:],
    ):
        assert SIGNED.unpack(b"a", forged) is Fault.FORGED


# Possible answers of a server to a read of two keys, in RESP2 and RESP3.
GOOD = PLAIN.pack(b"t:1", vector(1))
BULK = b"$%d\r\n%s\r\n" % (len(GOOD), GOOD)
ANSWERS = {
    "integers": b"*2\r\n:1\r\n:2\r\n",
    "simple strings": b"*2\r\n+OK\r\n+OK\r\n",
    "errors inside": b"*2\r\n-ERR a\r\n-WRONGTYPE b\r\n",
    "lists inside": b"*2\r\n*1\r\n" + BULK + b"*0\r\n",
    "one too few": b"*1\r\n" + BULK,
    "one too many": b"*3\r\n" + 3 * BULK,
    "no list": b":5\r\n",
    "a string": BULK,
    "null": b"*-1\r\n",
    "an error": b"-LOADING later\r\n",
    "a number that is none": b":x\r\n",
    "a length that is none": b"$x\r\n",
    "a length below none": b"*-7\r\n",
    "an unknown type": b"?what\r\n",
    "a map": b"%1\r\n:1\r\n:2\r\n",
    "a set": b"~2\r\n:1\r\n:2\r\n",
    "a double": b",1.5\r\n",
    "lists in lists": 3000 * b"*1\r\n" + b":1\r\n",
    "no text": b"\xff\xfe\r\n",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_any_answer_of_redis_is_at_worst_a_miss(answer: bytes) -> None:
    async def scenario() -> tuple[list[Vectors | None], list[str]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while command := await reader.read(65_536):
                # each command of the handshake gets its own OK
                commands = command.count(b"CLIENT") + command.count(b"SELECT")
                writer.write(answer if b"EVAL" in command else b"+OK\r\n" * max(commands, 1))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        errors: list[str] = []
        cache = SharedCache(
            f"redis://127.0.0.1:{port}/0?protocol=2",
            prefix="t:",
            codec=PLAIN,
            ttl=60,
            timeout=0.5,
            on_error=errors.append,
        )
        async with server:
            found = await cache.get([b"1", b"2"])
            await cache.close()
        return found, errors

    found, errors = asyncio.run(scenario())
    assert found == [None, None]
    assert set(errors) <= {"read", "damaged"}
    assert errors


class Foreign:
    """A shared layer with wrong vectors for everything; ``signed`` says if it authenticates."""

    def __init__(self, *, signed: bool) -> None:
        self.signed = signed
        self.kept: list[bytes] = []

    async def get(self, keys: Sequence[bytes]) -> list[Vectors | None]:
        await asyncio.sleep(0.01)
        return [-vector(int(key)) for key in keys]

    def put(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        self.kept += keys


async def compute(keys: Sequence[bytes]) -> Vectors:
    await asyncio.sleep(0.01)
    return rows(keys)


async def test_lasting_work_uses_only_authenticated_vectors() -> None:
    cache = Cache(ProcessCache(1 << 20), Foreign(signed=False))  # type: ignore[arg-type]
    passing = await cache.get([b"1"], compute)
    assert passing[b"1"][1] is Source.REDIS
    # this process now has the vector in memory
    again = await cache.get([b"1"], compute)
    assert again[b"1"][1] is Source.PROCESS
    assert again[b"1"][0] == pytest.approx(-vector(1))
    kept = await cache.get([b"1"], compute, lasting=True)
    assert kept[b"1"][1] is Source.ENGINE
    assert kept[b"1"][0] == pytest.approx(vector(1))
    # the computed vector replaces the unauthenticated one, for all work
    after = await cache.get([b"1"], compute)
    assert after[b"1"][1] is Source.PROCESS
    assert after[b"1"][0] == pytest.approx(vector(1))
    assert (await cache.get([b"1"], compute, lasting=True))[b"1"][1] is Source.PROCESS


async def test_lasting_work_does_not_wait_for_reads_from_redis() -> None:
    cache = Cache(ProcessCache(0), Foreign(signed=False))  # type: ignore[arg-type]
    passing, kept = await asyncio.gather(
        cache.get([b"1"], compute), cache.get([b"1"], compute, lasting=True)
    )
    assert passing[b"1"][1] is Source.REDIS
    assert kept[b"1"][1] is Source.ENGINE
    assert kept[b"1"][0] == pytest.approx(vector(1))


async def test_lasting_work_uses_authenticated_vectors() -> None:
    cache = Cache(ProcessCache(1 << 20), Foreign(signed=True))  # type: ignore[arg-type]
    for source in (Source.REDIS, Source.PROCESS):
        assert (await cache.get([b"1"], compute, lasting=True))[b"1"][1] is source


async def test_tasks_of_lasting_work_are_lasting_too() -> None:
    async def said() -> bool:
        return layers.is_stored()

    with layers.stored():
        inside = asyncio.create_task(said())
    assert [await inside, layers.is_stored()] == [True, False]


@dataclass
class Pair:
    """Two services with one Redis: one with the secret, one without."""

    redis: RedisServer
    signed: Server
    plain: Server


@pytest.fixture(scope="module")
def pair(light: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    redis = RedisServer(folder)
    flags = ("--redis-url", redis.url, "--cache-bytes", "0", *light)
    with ExitStack() as stack:
        stack.callback(redis.close)
        signed = serving(folder / "signed" / "log", *flags, "--cache-secret", SECRET)
        plain = serving(folder / "plain" / "log", *flags)
        for name in ("signed", "plain"):
            (folder / name).mkdir()
        yield Pair(redis, stack.enter_context(signed), stack.enter_context(plain))


def embed(server: Server, text: str) -> tuple[Vectors, str]:
    answer = httpx.post(f"{server.url}/embed", json={"inputs": text}, timeout=60)
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()[0], np.float32), answer.headers["x-cache"]


def _replaced(pair: Pair, name: bytes, value: bytes) -> bool:
    return pair.redis.client.get(name) != value


def entry(pair: Pair, server: Server, text: str) -> tuple[bytes, Vectors]:
    """The name and the vector of a text that was never sent before."""
    before = pair.redis.names()
    found, source = embed(server, text)
    assert source == "miss"
    wait_until(lambda: len(pair.redis.names()) == len(before) + 1, 20)
    [name] = pair.redis.names() - before
    assert embed(server, text)[1] == "hit"
    return name, found


def errors(server: Server, kind: str) -> float:
    try:
        return server.metric(f'docsplit_cache_errors_total{{kind="{kind}"}}')
    except AssertionError:
        return 0


def test_with_a_secret_forged_moved_and_former_values_are_misses(
    pair: Pair,
) -> None:
    name, right = entry(pair, pair.signed, "piers of a bridge")
    other, wrong = entry(pair, pair.signed, "a tax return")
    moved = pair.redis.client.get(other)
    assert isinstance(moved, bytes)
    for number, value in enumerate((moved, Codec(len(wrong)).pack(name, wrong)), 1):
        pair.redis.client.set(name, value)
        found, source = embed(pair.signed, "piers of a bridge")
        assert source == "miss"
        assert found == pytest.approx(right, abs=1e-5)
        assert errors(pair.signed, "forged") == number
        # the computed vector replaced it
        wait_until(partial(_replaced, pair, name, value), 20)
    assert embed(pair.signed, "piers of a bridge")[1] == "hit"
    pair.redis.client.set(name, former(wrong))
    assert embed(pair.signed, "piers of a bridge")[1] == "miss"
    assert errors(pair.signed, "damaged") == 1


def test_services_with_and_without_the_secret_share_no_value(pair: Pair) -> None:
    entry(pair, pair.signed, "one of two worlds")
    entry(pair, pair.plain, "one of two worlds")


@pytest.mark.parametrize("how", ["documents", "classifier", "background"])
def test_poison_in_redis_is_never_stored(pair: Pair, how: str) -> None:
    text, poison = f"caissons for {how}", f"a recipe for {how}"
    name, right = entry(pair, pair.plain, text)
    _, wrong = entry(pair, pair.plain, poison)
    pair.redis.client.set(name, Codec(len(wrong)).pack(name, wrong))
    # the control: a writer to Redis can change answers that are not stored
    assert embed(pair.plain, text)[0] == pytest.approx(wrong, abs=1e-3)
    with httpx.Client(base_url=pair.plain.url, timeout=60) as client:
        if how == "documents":
            client.put("/indexes/a", json={}).raise_for_status()
            body: dict[str, Any] = {"documents": [{"id": "1", "text": text}]}
            client.post("/indexes/a/documents", json=body).raise_for_status()
            asked = {"index": "a", "text": poison, "top_k": 1}
            [found] = client.post("/similar", json=asked).raise_for_status().json()
            assert found["score"] < 0.9, "the stored vector is the poison"
        else:
            texts = [text, poison, "piers", "cakes"] * 3
            labels = ["bridge", "kitchen"] * 6
            background = how == "background"
            body = {"inputs": texts, "labels": labels, "background": background}
            said = client.put(f"/classifiers/{how}", json=body)
            assert said.status_code == (202 if background else 200), said.text
            path = f"/classifiers/{how}"
            wait_until(lambda: "training" not in client.get(path).json(), 60)
    # the vector computed for storage replaced the poison
    found, _ = embed(pair.plain, text)
    assert found == pytest.approx(right, abs=1e-3)


def test_the_log_warns_once_about_unauthenticated_values(pair: Pair) -> None:
    def warnings(server: Server) -> int:
        events = [json.loads(line) for line in server.log.read_text().splitlines()]
        return sum(event["event"] == "cache_not_authenticated" for event in events)

    assert warnings(pair.plain) == 1
    assert warnings(pair.signed) == 0
    assert SECRET not in pair.signed.log.read_text()
