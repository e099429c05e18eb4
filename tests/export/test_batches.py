"""The batches of the graphs."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import export.texts
from export.texts import batches

TEXTS = ["a b", "a b a b a", "b", "a b a b a b a b", "a a a"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordLevel({"[PAD]": 0, "a": 1, "b": 2}, unk_token="[PAD]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made


def shapes(tokenizer: Tokenizer, *, size: int) -> list[tuple[int, ...]]:
    made = batches(tokenizer, TEXTS, max_tokens=6, pad_token_id=9, size=size)
    return [batch["input_ids"].shape for batch in made]


def test_rows_keep_their_order_and_are_cut_and_padded(tokenizer: Tokenizer) -> None:
    first, second, third = batches(tokenizer, TEXTS, max_tokens=6, pad_token_id=9, size=2)
    assert first["input_ids"].tolist() == [[1, 2, 9, 9, 9], [1, 2, 1, 2, 1]]
    assert first["attention_mask"].tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]
    assert second["input_ids"].tolist() == [[2, 9, 9, 9, 9, 9], [1, 2, 1, 2, 1, 2]]
    assert third["input_ids"].tolist() == [[1, 1, 1]]
    assert third["input_ids"].dtype == third["attention_mask"].dtype == np.int64


def test_batches_of_long_windows_have_fewer_rows(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shapes(tokenizer, size=8) == [(5, 6)]
    monkeypatch.setattr(export.texts, "PADDED_TOKENS", 15)
    assert shapes(tokenizer, size=8) == [(3, 5), (2, 6)]
    monkeypatch.setattr(export.texts, "PADDED_TOKENS", 1)
    assert shapes(tokenizer, size=8) == [(1, 2), (1, 5), (1, 1), (1, 6), (1, 3)]
