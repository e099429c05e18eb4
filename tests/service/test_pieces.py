"""The tokenizer gets a long text in bounded pieces with the same tokens as the whole text."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.windowing import tokens as pieces
from docsplit.windowing.tokens import DocumentTokenizer, Side, Tokens

PATH = DEFAULT_BUNDLE / "tokenizer.json"
# three pieces
SIZE = 80_000
HOSTILE = {
    "punctuation": "!" * SIZE,
    "Chinese": "漢字" * (SIZE // 2),
    "one word": "a" * SIZE,
    "one word of another script": "д" * SIZE,
    "one word, then others": "a" * SIZE + " and others " * 5_000,
    "combining marks": "a" + "\u0301" * SIZE,
    "white space": "a" + " " * SIZE + "b",
    "words": "some words, " * (SIZE // 12),
    "words and an endless one": "some words " * 4_000 + "b" * SIZE + ". More words " * 4_000,
}
SIDES: list[Side] = ["right", "left"]


class Spy:
    """A tokenizer that records the number of characters in each call."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.longest = 0
        self.calls = 0
        self._tokenizer = tokenizer

    def encode_batch(self, texts: list[str], **options: bool) -> object:
        self.calls += 1
        self.longest = max(self.longest, *map(len, texts))
        return self._tokenizer.encode_batch(texts, **options)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> tuple[DocumentTokenizer, Spy]:
    tokenizer = DocumentTokenizer(PATH, 512)
    spy = Spy(Tokenizer.from_file(str(PATH)))
    monkeypatch.setattr(tokenizer, "_tokenizer", spy)
    return tokenizer, spy


def whole(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and starts of a text that is tokenised in one call."""
    tokenizer = Tokenizer.from_file(str(PATH))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encoding = tokenizer.encode(text, add_special_tokens=False)
    return np.array(encoding.ids), np.array([start for start, _ in encoding.offsets])


def encoded(tokenizer: DocumentTokenizer, text: str, limit: int, side: Side) -> Tokens:
    """Tokens of a text with a prompt, tokenised to the limit."""
    steps = tokenizer.encoding(text, "query: ", limit, side)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            tokens: Tokens = ended.value
            return tokens


@pytest.mark.parametrize("name", HOSTILE)
def test_pieces_have_the_tokens_of_the_whole(
    spied: tuple[DocumentTokenizer, Spy], name: str
) -> None:
    tokenizer, spy = spied
    text = HOSTILE[name]
    tokens = tokenizer.encode(text)
    ids, starts = whole(text)
    assert spy.longest <= pieces.LONGEST < len(text)
    np.testing.assert_array_equal(tokens.ids, ids)
    np.testing.assert_array_equal(tokens.starts, starts)


@pytest.mark.parametrize("name", [name for name in HOSTILE if "one" in name or "endless" in name])
def test_an_endless_word_is_read_in_parts(name: str) -> None:
    """Its tokens, joined, are the text but for some letters where a piece ends inside a word."""
    tokenizer = DocumentTokenizer(PATH, 512)
    text = HOSTILE[name]
    tokens = tokenizer.encode(text)
    assert tokenizer.unknown(tokens) == 0
    plain = Tokenizer.from_file(str(PATH))
    found = "".join(str(plain.id_to_token(one)).removeprefix("##") for one in tokens.ids.tolist())
    assert abs(len(found) - len(text.replace(" ", ""))) < 100
    assert (np.diff(tokens.starts) > 0).all()


def test_only_words_beyond_the_limit_of_the_model_are_split() -> None:
    tokenizer = DocumentTokenizer(PATH, 512)
    for length in (99, 100):
        text = f"Some {'ab' * length}"[: 5 + length] + ", and more."
        np.testing.assert_array_equal(tokenizer.encode(text).ids, whole(text)[0])
    glued = [
        "Thesupplierdeliversthepumpwithinthirtydaysoftheorderandthebuyerpaysthepriceafteracceptance"
        "ofthegoodsattheplant",
        "Thechildrenplayedinthegardenuntilthesunwentdownandthentheirmothercalledthemintothehousetoeat"
        "somesoupwithbread",
    ]
    for text in glued:
        # without the split
        assert len(whole(text)[0]) == 1
        assert tokenizer.unknown(tokenizer.encode(text)) == 0
    first, second = (set(tokenizer.encode(text).ids.tolist()) for text in glued)
    assert len(first & second) < len(first | second) / 2
    # a language that the vocabulary lacks
    assert tokenizer.unknown(tokenizer.encode("The cat ខ្មែរ, ភាសា.", "ខ្មែរ: ")) == 2


@pytest.mark.parametrize("side", SIDES)
def test_tokenising_stops_past_the_limit(spied: tuple[DocumentTokenizer, Spy], side: Side) -> None:
    tokenizer, spy = spied
    text = "first " + "! " * 1_000_000 + "last"
    tokens = encoded(tokenizer, text, 1000, side)
    assert not tokens.complete
    assert 1000 < len(tokens.ids) - tokens.prompt <= 1000 + pieces.LONGEST
    # the prompt has its own call if the start of the text is not read
    assert spy.calls == (1 if side == "right" else 2)
    edge = tokenizer.encode("first" if side == "right" else "last").ids[0]
    assert tokens.ids[tokens.prompt if side == "right" else -1] == edge
    np.testing.assert_array_equal(tokens.ids[: tokens.prompt], tokenizer.encode("query: ").ids)


def test_a_text_within_the_limit_is_tokenised_whole_from_either_side() -> None:
    tokenizer = DocumentTokenizer(PATH, 512)
    text = "some words " * 8_000
    one, two = (encoded(tokenizer, text, 1_000_000, side) for side in SIDES)
    assert one.complete
    assert two.complete
    np.testing.assert_array_equal(one.ids, two.ids)
    np.testing.assert_array_equal(one.starts, two.starts)
