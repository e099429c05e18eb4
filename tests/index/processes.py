"""Processes that share an index's path, in one event loop, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np

from service.embedding.embedder import Document
from service.index import reembed
from service.index.documents import Index
from service.index.indexes import Indexes, Model, connect
from service.index.reembed import Follower
from service.index.rows.records import Encoding, Record

HOUR = 3_600_000_000


def embedded(text: str) -> Document:
    """A document of one window whose vector holds its length."""
    vector = np.array([1, len(text), 0, 0], dtype=np.float32)
    window = SimpleNamespace(end=len(text))
    made = SimpleNamespace(vector=lambda: vector, matrix=lambda: vector[None], windows=[window])
    return cast(Document, made)


async def embed(texts: Sequence[str]) -> list[Document]:
    return [embedded(text) for text in texts]


def record(name: str, text: str = "text") -> Record:
    vector = np.array([1, 0, 0, 0], dtype=np.float32)
    return Record(name, text, None, {"n": 1}, ["b"], Encoding(vector, vector[None], [len(text)]))


class Replicas:
    """Processes of three revisions on one path; ``a`` has created the index."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self, revision: str) -> Indexes:
        databases = [await connect(f"{self.path}/{part}") for part in ("indexes", "leases")]
        return Indexes(databases[0], databases[1], Model("model", revision * 64, 4))

    async def pair(self) -> tuple[Index, Index]:
        """The complete generation of ``a``, and the empty one of ``b``."""
        a, b = await self.open("a"), await self.open("b")
        await a.create("x", {})
        return await a.open("x"), await b.writable("x")


def follower(indexes: Indexes, embed: reembed.Embed = embed) -> Follower:
    return Follower(indexes, lambda _: embed, lambda *_: None, lambda _: None)


async def copy(own: Index, other: Index, embed: reembed.Embed = embed) -> int:
    return await reembed.catch_up(own, other, embed, lambda _: None)


async def text(index: Index, name: str) -> str | None:
    return (await index.get(name)).text if await index.has(name) else None


def run(test: Callable[[Replicas], Awaitable[None]]) -> Callable[[Path], None]:
    """A test in an event loop, on replicas in a new folder."""

    def started(tmp_path: Path) -> None:
        async def main() -> None:
            await test(Replicas(tmp_path))

        asyncio.run(main())

    started.__name__ = test.__name__
    return started
