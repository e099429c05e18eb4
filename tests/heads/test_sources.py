"""Examples from an index."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest

from service.errors import InvalidError, OverloadedError
from service.index import commits
from service.index.documents import Index
from service.learning import examples as sources
from service.learning.labels import Labelled
from tests.index.graphs import filled
from tests.index.processes import Replicas, record


async def test_memory_is_reserved_before_texts_are_read(
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

    _, index = await filled(tmp_path, {"a": set(), "b": set(), "c": set()}, {})
    texts, vectors = await sources.documents(index, ["c", "a", "b"], reserve=reserved.append)
    assert texts == ["Text."] * 3
    assert vectors.shape == (3, 2)
    with pytest.raises(OverloadedError):
        await sources.documents(index, ["a"], reserve=full)
    # the characters of all texts so far; nothing is read without room
    assert list(accumulate(reserved)) == [10, 15]
    assert read == [1, 2]


async def test_a_document_that_is_deleted_between_two_reads_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = sources.named

    indexes = await Replicas(tmp_path).open("a")
    await indexes.create("x", {})
    index = await indexes.open("x")
    names = ["a1", "a2", "b1", "b2", "gone"]
    labelled = [Labelled("x", name, [name[0]], 1.0) for name in names]

    async def named(index: Index, ids: list[str], columns: list[str]) -> object:
        found = await reading(index, ids, columns)
        await commits.delete_everywhere(indexes, "x", index.identity.uid, ["gone"])
        return found

    monkeypatch.setattr(sources, "named", named)
    for strict in (False, True):
        await index.put([record(name, f"The text {name}.") for name in names])
        if strict:
            with pytest.raises(InvalidError, match=r"1 of 5 are not in .* at position 4"):
                await sources.documents(index, names)
            continue
        examples, vectors = await sources.gather(indexes, None, labelled)
        assert examples.inputs == [f"The text {name}." for name in names[:-1]]
        assert (examples.labels, len(vectors)) == ([["a"], ["a"], ["b"], ["b"]], 4)
