"""Content-defined windows: the windows that an edit changes, and those that it must not."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docsplit.bundles import format as bundle
from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.windowing import sentences
from docsplit.windowing.tokens import DocumentTokenizer
from docsplit.windowing.windows import cut

Cutter = Callable[[DocumentTokenizer, str], list[bytes]]


@pytest.fixture(scope="module")
def tokenizer() -> DocumentTokenizer:
    opened = bundle.load(DEFAULT_BUNDLE, verify=False)
    return DocumentTokenizer(opened.path("tokenizer.json"), opened.manifest.max_tokens)


def content_defined(tokenizer: DocumentTokenizer, text: str) -> list[bytes]:
    """The content of every window."""
    tokens = tokenizer.encode(text)
    sentences, words = tokenizer.boundaries(text, tokens)
    edges = [0, *cut(tokens.ids, sentences, words, tokenizer.capacity)]
    return [tokens.ids[a:b].tobytes() for a, b in pairwise(edges)]


def fixed_length(tokenizer: DocumentTokenizer, text: str) -> list[bytes]:
    """The control: windows of equal length, as a plain chunker makes them."""
    ids = tokenizer.encode(text).ids
    return [
        ids[a : a + tokenizer.capacity].tobytes() for a in range(0, len(ids), tokenizer.capacity)
    ]


def edited(text: str, seed: int) -> str:
    """The text with one sentence near its middle replaced."""
    rng = random.Random(seed)
    sentences = text.split(". ")
    at = len(sentences) // 2 + rng.randint(-20, 20)
    words = rng.choices(text.split(), k=rng.randint(1, 40))
    sentences[at] = " ".join(word.strip(".!?\n") for word in words)
    return ". ".join(sentences)


def changed(cutter: Cutter, tokenizer: DocumentTokenizer, before: str, after: str) -> int:
    return len(set(cutter(tokenizer, after)) - set(cutter(tokenizer, before)))


def test_edit_in_the_middle_changes_at_most_three_windows(
    tokenizer: DocumentTokenizer, long_document: str
) -> None:
    counts = [
        changed(content_defined, tokenizer, long_document, edited(long_document, seed))
        for seed in range(12)
    ]
    assert max(counts) <= 3
    assert min(counts) >= 1
    control = changed(fixed_length, tokenizer, long_document, edited(long_document, 0))
    assert control > 3 * max(counts)


def test_appended_text_changes_only_the_last_window(
    tokenizer: DocumentTokenizer, long_document: str
) -> None:
    paragraphs = long_document.split("\n\n")
    for kept in range(20, len(paragraphs), 97):
        before = content_defined(tokenizer, "\n\n".join(paragraphs[:kept]))
        after = content_defined(tokenizer, "\n\n".join(paragraphs[: kept + 30]))
        assert after[: len(before) - 1] == before[:-1]


def test_a_list_that_grows_keeps_its_windows_at_every_length(
    tokenizer: DocumentTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it becomes a long paragraph, whose lines always end sentences."""
    lines = [f"part {i * 7919 % 9973} of list {i * 104729 % 8087}\n" for i in range(400)]
    texts = ["".join(lines[:count]) for count in range(100, 400, 10)]
    assert len(texts[0]) < sentences.LONGEST_PARAGRAPH < len(texts[-1])

    def most() -> int:
        return max(changed(content_defined, tokenizer, *pair) for pair in pairwise(texts))

    assert most() <= 2
    # the control
    monkeypatch.setattr(sentences, "_LONGEST_SENTENCE", sentences.LONGEST_PARAGRAPH)
    assert most() > 2


def test_short_document_is_one_window(tokenizer: DocumentTokenizer) -> None:
    assert len(content_defined(tokenizer, "One sentence. Another one.")) == 1


def test_windows_end_at_sentences(tokenizer: DocumentTokenizer, long_document: str) -> None:
    tokens = tokenizer.encode(long_document)
    sentences, words = tokenizer.boundaries(long_document, tokens)
    ends = cut(tokens.ids, sentences, words, tokenizer.capacity)
    inside = set(ends[:-1]) - set(sentences.tolist())
    assert len(inside) <= len(ends) // 50


def test_pieces_of_a_long_text_have_the_tokens_of_the_whole(
    tokenizer: DocumentTokenizer, peps: dict[str, str]
) -> None:
    longest = max(peps.values(), key=len)
    assert len(longest) > 65_536
    whole = tokenizer.whole(longest)
    tokens = tokenizer.encode(longest)
    assert tokens.ids.tolist() == whole.ids
    assert tokens.starts.tolist() == [start for start, _ in whole.offsets]


@given(
    lengths=st.lists(st.integers(1, 700), min_size=1, max_size=60),
    capacity=st.integers(8, 510),
    vocabulary=st.sampled_from([1, 3, 30_000]),
    seed=st.integers(0, 2**32 - 1),
)
def test_windows_cover_all_tokens_within_capacity(
    lengths: list[int], capacity: int, vocabulary: int, seed: int
) -> None:
    total = sum(lengths)
    ids = np.random.default_rng(seed).integers(0, vocabulary, total).astype(np.int32)
    sentences = np.cumsum(lengths)[:-1]
    ends = cut(ids, sentences, np.zeros(0, dtype=np.int64), capacity)
    sizes = np.diff([0, *ends])
    assert ends[-1] == total
    assert sizes.min() >= 1
    assert sizes.max() <= capacity


def test_bundle_is_shipped() -> None:
    assert Path(DEFAULT_BUNDLE).is_dir()
