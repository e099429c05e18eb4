"""Embedding in batches, where the queue is full and where documents are at fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from service.embedding.batching.batcher import OverloadedError
from service.embedding.embedder import Document, DocumentWindow, Embedded, Embedder, EmptyInputError
from service.errors import InvalidError
from service.learning import embedding


class Faulty:
    """In place of an embedder: ``full`` times its queue is full, and ``-`` is an empty document."""

    def __init__(self, full: int = 0) -> None:
        self.full = full
        self.batches: list[list[str]] = []

    async def embed(self, texts: Sequence[str], deadline: float, *, prompt: str) -> Embedded:
        if self.full:
            self.full -= 1
            raise OverloadedError(0.0)
        if "-" in texts:
            raise EmptyInputError(list(texts).index("-"))
        self.batches.append(list(texts))
        ids = np.zeros(1, dtype=np.int32)
        vectors = [np.array([len(text), 1], dtype=np.float32) for text in texts]
        return Embedded(
            [
                Document(len(t), 1, [DocumentWindow(0, len(t), 1, ids, v)])
                for t, v in zip(texts, vectors, strict=True)
            ]
        )


def run(fake: Faulty, texts: list[str]) -> tuple[Any, list[int]]:
    done: list[int] = []
    vectors = asyncio.run(
        embedding.embed(cast(Embedder, fake), texts, "", lambda number, _: done.append(number))
    )
    return vectors, done


def test_batches_keep_the_order_and_their_bounds() -> None:
    texts = ["x" * (1 + 137 * i % 9001) for i in range(400)] + ["y" * 900_000, "z"]
    fake = Faulty()
    vectors, done = run(fake, texts)
    assert [text for batch in fake.batches for text in batch] == texts
    assert np.allclose(vectors[:, 0] / vectors[:, 1], [len(text) for text in texts], rtol=1e-4)
    assert done == np.cumsum([len(batch) for batch in fake.batches]).tolist()
    sizes = [sum(map(len, batch)) for batch in fake.batches if len(batch) > 1]
    assert max(sizes) <= embedding.MOST_CHARACTERS
    # it was fast, so the batches grew
    assert sizes[0] <= embedding.FIRST_CHARACTERS < max(sizes)
    assert ["y" * 900_000] in fake.batches


def test_a_full_queue_is_waited_for() -> None:
    fake = Faulty(full=3)
    vectors, _ = run(fake, ["a", "bb"])
    assert len(vectors) == 2
    assert fake.full == 0


def test_the_empty_document_is_named() -> None:
    texts = ["a" * 9000] * 5 + ["b", "-", "c"]
    with pytest.raises(InvalidError, match="input 6 is empty"):
        run(Faulty(), texts)
    assert len(run(Faulty(), [t for t in texts if t != "-"])[0]) == 7
