"""An index belongs to the name of its bundle: only a bundle of that name re-embeds it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from service.errors import BuildingError, ConflictError, NotFoundError
from service.index.indexes import Indexes, Model, connect
from service.index.reembed import Embed, Follower
from tests.index.processes import embed, record

SMALL = Model("small", "a" * 64, 4)
NEWER = Model("small", "b" * 64, 4)
LARGE = Model("large", "c" * 64, 8)


async def served(path: Path, *models: Model) -> Indexes:
    databases = [await connect(f"{path}/{part}") for part in ("indexes", "leases")]
    return Indexes(databases[0], databases[1], models)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def one_round(indexes: Indexes, embed_for: dict[str, Embed] | None = None) -> None:
    """What a service does every few seconds; an unexpected revision raises KeyError."""
    follower = Follower(indexes, (embed_for or {}).__getitem__, lambda *_: None, lambda _: None)
    await follower._round()
    await asyncio.gather(*follower._tasks.values())
    await follower.close()


async def revisions(indexes: Indexes, name: str) -> set[str]:
    return {g.index.identity.revision for g in await indexes.generations(name)}


def test_a_bundle_of_another_name_does_not_re_embed_an_index(tmp_path: Path) -> None:
    async def scenario() -> None:
        await (await served(tmp_path, SMALL)).create("x", {})
        other = await served(tmp_path, LARGE)
        await one_round(other)
        for read in (other.open, other.writable):
            with pytest.raises(ConflictError, match="--bundle small=PATH"):
                await read("x")
        with pytest.raises(ConflictError):
            await other.drop_generation("x", SMALL.revision)
        assert await revisions(other, "x") == {SMALL.revision}
        # a deletion needs no bundle
        await other.drop("x")
        with pytest.raises(NotFoundError):
            await other.open("x")

    run(scenario())


def test_a_successor_under_the_name_re_embeds_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = await served(tmp_path, SMALL)
        await first.create("x", {})
        await (await first.open("x")).put([record("1", "one")])
        newer = await served(tmp_path, LARGE, NEWER)
        with pytest.raises(BuildingError):
            await newer.open("x")
        await one_round(newer, {NEWER.revision: embed})
        index = await newer.open("x")
        assert (index.identity.model, index.identity.revision) == ("small", NEWER.revision)
        assert await index.has("1")
        # the former revision, served under another name at the same time, does not keep it
        both = await served(tmp_path, Model("former", SMALL.revision, 4), NEWER)
        assert (await both.open("x")).identity.revision == NEWER.revision

    run(scenario())


def test_a_bundle_serves_its_own_vectors_under_another_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        await (await served(tmp_path, SMALL)).create("x", {})
        renamed = await served(tmp_path, LARGE, Model("tiny", SMALL.revision, 4))
        await one_round(renamed)
        assert (await renamed.open("x")).identity.revision == SMALL.revision

    run(scenario())


def test_each_index_has_the_bundle_that_it_was_made_with(tmp_path: Path) -> None:
    async def scenario() -> None:
        indexes = await served(tmp_path, SMALL, LARGE)
        assert await indexes.create("x", {})
        assert await indexes.create("y", {}, "large")
        assert not await indexes.create("y", {})
        with pytest.raises(ConflictError, match="for another bundle"):
            await indexes.create("y", {}, "small")
        await one_round(indexes)
        found: Sequence[tuple[str, str]] = [("x", SMALL.revision), ("y", LARGE.revision)]
        for name, revision in found:
            assert (await indexes.open(name)).identity.revision == revision
            assert (await indexes.writable(name)).identity.revision == revision
            assert await revisions(indexes, name) == {revision}

    run(scenario())
