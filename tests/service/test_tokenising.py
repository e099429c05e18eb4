"""Short texts share a step of a tokenising thread, and long texts do not keep it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.windowing import tokens as pieces
from docsplit.windowing.tokens import DocumentTokenizer
from service.embedding.tokenising import Steps, in_succession

Result = TypeVar("Result")


def length(text: str, pauses: int = 0) -> Steps[int]:
    for _ in range(pauses):
        yield
    return len(text)


def counted(works: Sequence[tuple[str, Steps[Result]]]) -> tuple[list[Result], int]:
    """The results, and how often the work paused."""
    steps, pauses = in_succession(works), 0
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            results: list[Result] = ended.value
            return results, pauses
        pauses += 1


@pytest.mark.parametrize(("texts", "pauses"), [(1, 0), (100, 0), (400, 2), (0, 0)])
def test_short_texts_share_a_step(texts: int, pauses: int) -> None:
    works = [("a" * 100, length("a" * 100)) for _ in range(texts)]
    assert counted(works) == ([100] * texts, pauses)


def test_the_pauses_of_a_long_text_stay() -> None:
    works = [("a", length("a")), ("b" * 5, length("b" * 5, pauses=3)), ("c", length("c"))]
    assert counted(works) == ([1, 5, 1], 3)


def test_words_start_after_any_white_space() -> None:
    tokenizer = DocumentTokenizer(DEFAULT_BUNDLE / "tokenizer.json", 64)
    spaces = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000"
    text = "".join(f"word{space}\U0001f600e\u0301\ufeff" for space in spaces)
    assert not any(chr(point).isspace() for point in range(1 << 16, sys.maxunicode + 1))
    tokens = tokenizer.encode(text)
    _, words = tokenizer.boundaries(text, tokens)
    expected = [i for i, s in enumerate(tokens.starts.tolist()) if i and text[s - 1 : s].isspace()]
    assert len(expected) > len(spaces) // 2
    np.testing.assert_array_equal(words, expected)


def test_a_text_beyond_the_limit_is_not_cut_to_the_limit() -> None:
    tokenizer = DocumentTokenizer(DEFAULT_BUNDLE / "tokenizer.json", 64)
    text = "word " * pieces.LONGEST
    begin, end = next(pieces.ranges(text))
    first = len(tokenizer.encode(text[begin:end]).ids)
    # tokenising stops after the piece that exceeds the limit
    for limit, read in ((first - 1, first), (first, 2 * first)):
        [found], _ = counted([(text, tokenizer.encoding(text, limit=limit))])
        assert len(found.ids) == read


QUERY = "Find what answers it. Query: "


@pytest.mark.parametrize("trimmed", [True, False])
@pytest.mark.parametrize("text", ["weather", "the weather today is warm " * 12])
def test_a_word_after_the_blank_of_a_prompt_belongs_to_the_text(text: str, trimmed: bool) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [QUERY + text] * 9, trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trimmed)
    document = DocumentTokenizer(tokenizer, 64)
    tokens = document.encode(text, QUERY)
    # the blank is a part of the first word's token
    own = document.count(QUERY + text) - document.count(QUERY.rstrip())
    assert len(tokens.ids) - tokens.prompt == own
    assert tokens.starts[tokens.prompt] == 0
    assert tokenizer.decode(tokens.ids[tokens.prompt :].tolist()).strip() == text.strip()
