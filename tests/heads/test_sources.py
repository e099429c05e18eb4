"""Examples from an index."""

from __future__ import annotations

import asyncio
from itertools import accumulate
from pathlib import Path

import pytest

from service.errors import OverloadedError
from service.index.documents import Index
from service.learning import sources
from tests.index.graphs import filled


def test_memory_is_reserved_before_texts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []
    read: list[int] = []
    reading = sources.read

    def noted(index: Index, lengths: dict[str, int], *, strict: bool = False) -> object:
        read.append(len(reserved))
        return reading(index, lengths, strict=strict)

    def full(characters: int) -> None:
        raise OverloadedError(1, "full")

    monkeypatch.setattr(sources, "CHUNK", 2)
    monkeypatch.setattr(sources, "read", noted)

    async def run() -> None:
        _, index = await filled(tmp_path, {"a": set(), "b": set(), "c": set()}, {})
        texts, vectors = await sources.documents(index, ["c", "a", "b"], reserve=reserved.append)
        assert texts == ["Text."] * 3
        assert vectors.shape == (3, 2)
        with pytest.raises(OverloadedError):
            await sources.documents(index, ["a"], reserve=full)

    asyncio.run(run())
    # the characters of all texts so far; nothing is read without room
    assert list(accumulate(reserved)) == [10, 15]
    assert read == [1, 2]
