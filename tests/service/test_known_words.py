"""Words from memory have the tokens that the tokenizer gives them in a text."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Encoding, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.windowing import known_words
from docsplit.windowing.known_words import KnownWords, offsets_of, reads_words
from docsplit.windowing.tokens import DocumentTokenizer

PATH = DEFAULT_BUNDLE / "tokenizer.json"
# what a tokenizer may drop, divide or join, and what Python and Rust may call a blank
ODD = st.sampled_from(
    [
        *" \n\t\r\x0b\x0c\x1c\x1d\x85\xa0\u2003\u2028\u3000",
        *"\x00\x7f\u00ad\u200b\u200d\ufeff\ufffd\u0301\u0323éßİıΣςﬁ漢かé가ไ\u0e32а",
        *("[MASK]", "[SEP]", "[sep]", "##ing", "a" * 33, "b" * 120),
    ]
)
TEXTS = st.lists(ODD | st.text(max_size=3) | st.sampled_from(["word ", "Words. ", "x,y"]))


@pytest.fixture(scope="module")
def tokenizer() -> DocumentTokenizer:
    return DocumentTokenizer(PATH, 512)


def check(tokenizer: DocumentTokenizer, text: str) -> None:
    tokens, whole = tokenizer.encode(text), tokenizer.whole(text)
    np.testing.assert_array_equal(tokens.ids, whole.ids)
    np.testing.assert_array_equal(tokens.starts, offsets_of(whole)[:, 0])


@given(TEXTS.map("".join))
def test_a_text_has_its_tokens_before_and_after_its_words_are_known(
    tokenizer: DocumentTokenizer, text: str
) -> None:
    check(tokenizer, text)
    check(tokenizer, text)


def test_most_words_are_read_once(
    tokenizer: DocumentTokenizer, peps: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = peps["pep-484"][:16_000]
    check(tokenizer, text)
    words = text.split()
    random.Random(0).shuffle(words)
    read: list[str] = []
    known = tokenizer._known_words
    assert known is not None

    def spy(text: str) -> Encoding:
        read.append(text)
        return tokenizer.whole(text)

    monkeypatch.setattr(known, "_tokenize", spy)
    check(tokenizer, " ".join(words))
    assert sum(map(len, read)) < len(text) / 20


def test_the_memory_is_bounded(
    tokenizer: DocumentTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_words, "_MOST", 100)
    known = KnownWords(tokenizer.whole, [])
    for first in range(0, 1000, 50):
        assert known.read(" ".join(f"w{number}" for number in range(first, first + 50))) is not None
        assert len(known._known) <= 100
    assert known.read("e" * 33) is not None
    assert "e" * 33 not in known._known


@pytest.mark.parametrize(
    ("added", "apart"),
    [
        (AddedToken("mark", normalized=True), True),
        (AddedToken("mark", lstrip=True, normalized=False), True),
        (AddedToken("mark", lstrip=True, normalized=True), False),
        (AddedToken("mark", rstrip=True, normalized=True), False),
        (AddedToken("two words"), False),
    ],
)
def test_added_tokens_that_take_blanks_are_not_read_by_words(
    added: AddedToken, apart: bool
) -> None:
    tokenizer = Tokenizer.from_file(str(PATH))
    tokenizer.add_tokens([added])
    assert reads_words(tokenizer) == apart
    whole = DocumentTokenizer(tokenizer, 512)
    for text in ("a  MARK  b", "a mark b", "two. words", "two x words", "two words"):
        check(whole, text)


def test_a_tokenizer_that_reads_blanks_with_words_does_not_read_words() -> None:
    tokenizer = Tokenizer.from_file(str(PATH))
    assert reads_words(tokenizer)
    tokenizer.pre_tokenizer = ByteLevel()
    assert not reads_words(tokenizer)
    known = KnownWords(lambda text: tokenizer.encode(text, add_special_tokens=False), [])
    found, text = known.read("one word"), "one\n\nword"
    assert found is not None
    assert found[0].tolist() == tokenizer.encode("one word", add_special_tokens=False).ids
    again = known.read(text)
    assert again is not None
    assert again[0].tolist() != tokenizer.encode(text, add_special_tokens=False).ids
