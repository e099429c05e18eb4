"""The words of a text that the full-text search looks for."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from docsplit.ranking.terms import MOST_WORDS, Bag, bag, count
from service.index.documents import Index
from service.index.query import words
from service.index.query.words import Vocabulary
from tests.conftest import Server
from tests.index.conftest import call, upsert

COMMON = [f"common{number}" for number in range(MOST_WORDS + 20)]
ASKED = " ".join(COMMON * 2) + " quokka"


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """The words matter, and no vector."""
    return light_server


def test_the_search_asks_for_a_rare_word(server: Server, index: str) -> None:
    texts = {name: " ".join(COMMON) for name in "abcde"}
    upsert(server, index, *({"id": name, "text": text} for name, text in texts.items()))
    upsert(server, index, {"id": "f", "text": " ".join([*COMMON, "quokka"])})
    [first, *_] = call(
        server, "POST", "/similar", {"index": index, "text": ASKED, "mode": "words", "top_k": 1}
    )
    assert first["id"] == "f"


def test_words_that_another_language_uses_everywhere_are_found(server: Server, index: str) -> None:
    words = ["cat", "dog", "war", "men", "face", "minutes"]
    texts = {word: f"Of the {word}." for word in words} | {"other": "Taxes."}
    upsert(server, index, *({"id": name, "text": text} for name, text in texts.items()))
    for word in words:
        hits = call(server, "POST", "/similar", {"index": index, "text": word, "mode": "words"})
        assert [hit["id"] for hit in hits] == [word]


def test_frequency_by_itself_would_not_ask_for_it() -> None:
    frequent = [word for word, _ in Counter(ASKED.split()).most_common(MOST_WORDS)]
    assert "quokka" not in frequent
    asked = count([bag(" ".join(COMMON))] * 3).top_terms(ASKED).split()
    assert len(asked) == MOST_WORDS
    assert asked[0] == "quokka"


def test_an_endless_word_is_cut() -> None:
    asked = count([bag("quokka")]).top_terms(f"quokka {'a' * 200_000}")
    assert "quokka" in asked.split()
    assert max(map(len, asked.split())) == 128


async def _sample(index: Any) -> list[Bag]:
    index.samples += 1
    return [bag(text) for text in index.texts]


class _Held:
    """An index with changing texts."""

    def __init__(self) -> None:
        self.table = self
        self.texts = ["one"]
        self.versions = 1
        self.samples = 0

    async def version(self) -> int:
        return self.versions


def test_words_are_counted_again_when_the_index_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "sample", _sample)
    # on a busy machine even this count may take long
    monkeypatch.setattr(words, "_SHORT_SECONDS", float("inf"))
    held, vocabulary = _Held(), Vocabulary()
    index = cast("Index", held)

    async def run() -> None:
        assert (await vocabulary.frequencies(index)).documents == 1
        assert (await vocabulary.frequencies(index)).documents == 1
        assert held.samples == 1
        held.texts, held.versions = ["one", "two"], 2
        assert (await vocabulary.frequencies(index)).documents == 2
        assert held.samples == 2

    asyncio.run(run())


def test_no_search_waits_for_a_long_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "sample", _sample)
    monkeypatch.setattr(words, "_SHORT_SECONDS", 0.0)
    monkeypatch.setattr(words, "_EFFORT", float("inf"))
    held, vocabulary = _Held(), Vocabulary()
    index = cast("Index", held)

    async def run() -> None:
        await vocabulary.frequencies(index)
        held.texts, held.versions = ["one", "two"], 2
        assert (await vocabulary.frequencies(index)).documents == 1
        assert vocabulary._task is not None
        await vocabulary._task
        assert (await vocabulary.frequencies(index)).documents == 2

    asyncio.run(run())
