"""Whole documents to vectors without a service, as the gate and the evaluation compute them."""

from __future__ import annotations

import numpy as np
import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.windowing.pooling import Vectors
from docsplit.windowing.tokens import DocumentTokenizer
from docsplit.windowing.vectors import Wide, document_vectors, pad, read
from docsplit.windowing.windows import Weighing

WINDOW = 16
PAD = 7
BATCH_TOKENS = 64
TEXTS = [
    "One short sentence.",
    "The parser reads a file. It stops at the first error. Then it names the line. " * 3,
    "Nobody answered! Was anybody there? The door stood open, and the lamp was lit. " * 2,
    "One short sentence.",
]


@pytest.fixture(scope="module")
def tokenizer() -> DocumentTokenizer:
    return DocumentTokenizer(DEFAULT_BUNDLE / "tokenizer.json", WINDOW)


def encode(ids: Wide, mask: Wide) -> Vectors:
    """A distinct direction for each window, which padding does not change."""
    assert (ids[mask == 0] == PAD).all()
    assert ids.size <= BATCH_TOKENS
    rows = [row[own == 1].tolist() for row, own in zip(ids, mask, strict=True)]
    vectors = np.array([np.random.default_rng(row).normal(size=24) for row in rows])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_windows_contain_every_token_once(tokenizer: DocumentTokenizer) -> None:
    documents = read(tokenizer, TEXTS)
    assert max(len(window.ids) for windows in documents for window in windows) <= WINDOW
    for text, windows in zip(TEXTS, documents, strict=True):
        ids = [w.ids[len(tokenizer.prefix) : -len(tokenizer.suffix)] for w in windows]
        assert np.array_equal(np.concatenate(ids), tokenizer.encode(text).ids)
        assert [len(own) for own in ids] == [window.tokens for window in windows]
        assert "".join(text[window.start : window.end] for window in windows) == text
    assert max(map(len, documents)) > 2


def test_the_first_window_is_filled_and_follows_the_prompt(tokenizer: DocumentTokenizer) -> None:
    [[first]] = read(tokenizer, TEXTS[1:2], "query: ", first=True)
    assert len(first.ids) == WINDOW
    lead = tokenizer.encode("query: ").ids
    assert np.array_equal(first.ids[1 : 1 + len(lead)], lead)
    assert first.tokens == WINDOW - len(tokenizer.model_input([])) - len(lead)


def test_a_document_is_the_weighted_mean_of_its_windows(tokenizer: DocumentTokenizer) -> None:
    shares: list[float] = []
    documents = read(tokenizer, TEXTS)
    found = document_vectors(
        documents, encode, pad_token_id=PAD, batch_tokens=BATCH_TOKENS, advance=shares.append
    )
    for windows, vector in zip(documents, found, strict=True):
        total = sum(w.tokens * encode(*pad([w.ids], PAD))[0] for w in windows)
        assert vector == pytest.approx(total / np.linalg.norm(total), abs=1e-5)
    assert np.array_equal(found[0], found[3])
    # the control: the first windows by themselves differ
    heads = [windows[:1] for windows in documents]
    first = document_vectors(heads, encode, pad_token_id=PAD, batch_tokens=BATCH_TOKENS)
    assert np.abs(first - found).max() > 0.1
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_the_first_window_counts_as_many_times_as_the_bundle_says(
    tokenizer: DocumentTokenizer,
) -> None:
    found = [read(tokenizer, TEXTS, weighing=Weighing(first=times)) for times in (1.0, 3.0)]
    once, thrice = (
        document_vectors(documents, encode, pad_token_id=PAD, batch_tokens=BATCH_TOKENS)
        for documents in found
    )
    for windows, plain, vector in zip(found[0], once, thrice, strict=True):
        rows = [w.tokens * encode(*pad([w.ids], PAD))[0] for w in windows]
        total = 3 * rows[0] + sum(rows[1:], np.zeros_like(rows[0]))
        assert vector == pytest.approx(total / np.linalg.norm(total), abs=1e-5)
        # nothing else can count in a document of one window
        assert (np.abs(vector - plain).max() > 1e-3) == (len(windows) > 1)


def test_letters_weigh_windows(tokenizer: DocumentTokenizer) -> None:
    text = "1 2 3 4 5 6 7 8 9 10. " * 20 + "Letters of whole sentences count for more. " * 20
    [by_tokens], [by_letters] = (
        read(tokenizer, [text], weighing=Weighing(unit)) for unit in ("tokens", "letters")
    )
    assert [w.weight for w in by_tokens] == [w.tokens for w in by_tokens]
    letters = [sum(x.isalpha() for x in text[w.start : w.end]) for w in by_letters]
    assert [w.weight for w in by_letters] == [max(1, count) for count in letters]
    # numbers have none
    assert 0 in letters


def test_long_windows_are_counted_in_pieces() -> None:
    text = "a1" * 100_000
    weights = Weighing("letters").weights(text, [(0, 10), (10, 200_000)], [1, 1])
    assert weights == [5, 99_995]


def test_a_text_without_tokens_has_a_vector(tokenizer: DocumentTokenizer) -> None:
    found = document_vectors(read(tokenizer, ["", "a"]), encode, pad_token_id=PAD)
    assert np.isfinite(found).all()


def test_values_that_are_not_finite_are_kept(tokenizer: DocumentTokenizer) -> None:
    def broken(ids: Wide, mask: Wide) -> Vectors:
        vectors = encode(ids, mask)
        vectors[0, 0] = np.nan
        return vectors

    found = document_vectors(read(tokenizer, ["a", "b"]), broken, pad_token_id=PAD)
    assert np.isnan(found).any(axis=1).sum() == 1


def test_rows_are_padded_to_the_longest_or_to_a_width() -> None:
    rows = [np.array([1, 2, 3]), np.array([4])]
    ids, mask = pad(rows, PAD)
    assert ids.tolist() == [[1, 2, 3], [4, PAD, PAD]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert pad(rows, PAD, 8)[0].shape == (2, 8)
