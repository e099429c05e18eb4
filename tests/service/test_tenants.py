"""A caller learns nothing about another's texts from ``x-cache``, usage or waiting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import SecretStr

from docsplit.windowing.pooling import Vectors
from docsplit.windowing.windows import Ids
from service.configuration import load
from service.embedding.batching.batcher import Computed
from service.embedding.batching.clients import BACKGROUND, Client, working_for
from service.embedding.cache.layers import Cache, ProcessCache, Source, Tenants
from service.embedding.embedder import CachedVectors
from service.keys import file
from service.server.edge.rights import KEY, by_token, identify
from service.settings import Settings
from tests.conftest import Server, serving, wait_until
from tests.redis_server import RedisServer

ONE, OTHER = "the-key-of-the-first-tenant", "the-key-of-another-tenant"


def names(client: str, tenants: Tenants) -> list[bytes]:
    with working_for(Client(client)):
        return tenants.own([b"0" * 16, b"1" * 16])


def test_separate_clients_have_different_names() -> None:
    tenants = Tenants(separate=True)
    assert names("key a", tenants) == names("key a", tenants)
    everybody = [names(client, tenants) for client in ("key a", "key b", "", BACKGROUND.name)]
    assert len({name for one in everybody for name in one}) == 8
    assert {len(name) for one in everybody for name in one} == {16}
    shared = Tenants(separate=False)
    assert names("key a", shared) == names("key b", shared) == [b"0" * 16, b"1" * 16]


def test_keys_of_the_settings_are_distinguished_by_their_tokens() -> None:
    former = Tenants(separate=True, aliases=by_token([SecretStr(ONE), SecretStr(OTHER)]))
    latter = Tenants(separate=True, aliases=by_token([SecretStr(OTHER)]))
    first = identify({KEY: "0"}).name
    second = identify({KEY: "1"}).name
    assert names(first, former) != names(first, latter)
    assert names(second, former) == names(first, latter)


@pytest.mark.parametrize(
    ("flags", "separate"),
    [
        ((), False),
        (("--api-keys", ONE), False),
        (("--api-keys", f"{ONE},{OTHER}"), True),
        (("--keys-file", "keys.toml"), True),
        (("--keys-file", "keys.toml", "--cache-sharing", "shared"), False),
        (("--cache-sharing", "separate"), True),
    ],
)
def test_caches_are_separate_with_several_keys(flags: tuple[str, ...], separate: bool) -> None:
    settings: Settings = load(list(flags))
    assert settings.caches_are_separate is separate


class Slow:
    """A batcher that computes slowly."""

    queued_tokens = 0

    async def compute(self, windows: Sequence[Ids], deadline: float, keep: object) -> Computed:
        await asyncio.sleep(0.02)
        vectors: Vectors = np.full((len(windows), 4), 0.5, np.float32)
        return Computed(vectors, 0.0, 0.0)


@pytest.mark.parametrize(("separate", "expected"), [(True, Source.ENGINE), (False, Source.FLIGHT)])
async def test_no_client_waits_for_anothers_computation(separate: bool, expected: Source) -> None:
    tenants = Tenants(separate=separate)
    vectors = CachedVectors(Cache(ProcessCache(0)), Slow(), tenants)  # type: ignore[arg-type]

    async def ask(client: str) -> Source:
        with working_for(Client(client)):
            found = await vectors.get([b"0" * 16], [np.zeros(3, np.int64)], 1e9)
        return found.sources[0]

    first, second, again = await asyncio.gather(ask("key a"), ask("key b"), ask("key a"))
    assert first is Source.ENGINE
    assert again is Source.FLIGHT
    assert second is expected


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.close()


@pytest.fixture(scope="module", params=["keys in a file", "keys in the settings"])
def shared(
    request: pytest.FixtureRequest,
    redis: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
    light: tuple[str, ...],
) -> Iterator[Server]:
    """A service with two keys."""
    folder: Path = tmp_path_factory.mktemp("tenants")
    keys = folder / "keys.toml"
    flags = ["--redis-url", redis.url, *light]
    if request.param == "keys in a file":
        digests = [file.digest(token.encode()).hex() for token in (ONE, OTHER)]
        keys.write_text("".join(f'[keys.k{n}]\nsha256 = "{d}"\n' for n, d in enumerate(digests)))
        flags += ["--keys-file", str(keys)]
    else:
        flags += ["--api-keys", f"{ONE},{OTHER}"]
    with serving(folder / "log", *flags) as running:
        yield running


def ask(server: Server, token: str, path: str, body: dict[str, Any], spaces: int = 0) -> str:
    """The value of ``x-cache``; ``spaces`` makes bodies that differ from earlier ones."""
    answer = httpx.post(
        f"{server.url}{path}",
        content=json.dumps(body, indent=spaces or None),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    return answer.headers["x-cache"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": "embed: Miss Marple did it"}),
        ("/v1/embeddings", {"input": "openai: Miss Marple did it", "model": "docsplit"}),
        ("/similarity", {"inputs": {"source_sentence": "Who?", "sentences": ["Miss Marple"]}}),
    ],
)
def test_a_guessed_text_is_a_miss_for_another_key(
    shared: Server, redis: RedisServer, path: str, body: dict[str, Any]
) -> None:
    if "model" in body:
        models = httpx.get(f"{shared.url}/v1/models").json()
        body = body | {"model": models["data"][0]["id"]}
    before = redis.client.dbsize()
    assert ask(shared, ONE, path, body) == "miss"
    wait_until(lambda: redis.client.dbsize() > before, 20)
    # the control: the sender itself gets hits, for the same bytes and for others
    assert [ask(shared, ONE, path, body, spaces) for spaces in (0, 1)] == ["hit", "hit"]
    assert [ask(shared, OTHER, path, body, spaces) for spaces in (0, 1)] == ["miss", "hit"]
