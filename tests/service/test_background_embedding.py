"""Embedding in batches, with a full queue and with faulty documents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from service.embedding import background
from service.embedding.background import BackgroundEmbedder
from service.embedding.batching import clients
from service.embedding.cache import layers
from service.embedding.embedder import (
    Document,
    DocumentWindow,
    Embedded,
    Embedder,
    EmptyInputError,
    UnusableInputError,
)
from service.errors import OverloadedError


class Faulty:
    """Replaces an embedder: its queue is full ``full`` times, and ``-`` is an empty document."""

    queued_tokens = 0

    def __init__(self, full: int = 0) -> None:
        self.full = full
        self.batches: list[list[str]] = []

    async def embed(
        self, texts: Sequence[str], deadline: float, *, prompt: str, refuse: bool, **cut: object
    ) -> Embedded:
        assert refuse
        assert not cut["truncate"]
        assert layers.is_stored()
        assert clients.current() is clients.BACKGROUND
        if self.full:
            self.full -= 1
            raise OverloadedError(0.0)
        self.batches.append(list(texts))
        refused: dict[int, UnusableInputError] = {
            i: EmptyInputError(i) for i, text in enumerate(texts) if text == "-"
        }
        return Embedded([document(t) for t in texts if t != "-"], refused=refused)


def document(text: str) -> Document:
    vector = np.array([len(text), 1], dtype=np.float32)
    window = DocumentWindow(0, len(text), 1, np.zeros(1, dtype=np.int32), 1, vector)
    return Document(len(text), 1, [window])


def run(
    fake: Faulty, texts: list[str], *, exclusive: bool = False
) -> list[Document | UnusableInputError]:
    embed = BackgroundEmbedder(cast(Embedder, fake), "", exclusive=exclusive)
    return asyncio.run(embed(texts))


@pytest.mark.parametrize("exclusive", [False, True])
def test_batches_keep_order_and_size_limits(exclusive: bool) -> None:
    texts = ["x" * (1 + 137 * i % 9001) for i in range(400)] + ["y" * 900_000, "z"]
    fake = Faulty()
    outcomes = run(fake, texts, exclusive=exclusive)
    assert [text for batch in fake.batches for text in batch] == texts
    documents = [outcome for outcome in outcomes if isinstance(outcome, Document)]
    assert [found.characters for found in documents] == [len(text) for text in texts]
    sizes = [sum(map(len, batch)) for batch in fake.batches if len(batch) > 1]
    assert max(sizes) <= background.MOST_CHARACTERS
    assert max(map(len, fake.batches)) <= background.MOST_DOCUMENTS
    # if requests share the engine, batches are small until they prove fast
    assert (sizes[0] <= background.FIRST_CHARACTERS) is not exclusive
    assert max(sizes) > background.FIRST_CHARACTERS
    assert ["y" * 900_000] in fake.batches


def test_the_background_waits_for_a_full_queue() -> None:
    fake = Faulty(full=3)
    assert len(run(fake, ["a", "bb"])) == 2
    assert fake.full == 0


def test_an_empty_document_is_named_and_the_others_are_embedded() -> None:
    texts = ["a" * 9000] * 5 + ["b", "-", "c"]
    fake = Faulty()
    outcomes = run(fake, texts)
    assert [text for batch in fake.batches for text in batch] == texts
    refused = outcomes.pop(6)
    assert isinstance(refused, EmptyInputError)
    assert str(refused).startswith("input 6 is empty")
    assert all(isinstance(outcome, Document) for outcome in outcomes)
