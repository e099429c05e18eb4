"""Properties of each view."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import PreTrainedTokenizerFast

from training.settings import ObjectiveSettings
from training.views import (
    VIEWS,
    Document,
    ViewContext,
    elongate,
    mask_words,
    pack_windows,
    view_of,
    word_starts,
)

MASK = 4
VOCABULARY = 1_000


def context(window: int = 256, **objective: Any) -> ViewContext:
    starts = np.ones(VOCABULARY, dtype=np.bool_)
    starts[VOCABULARY // 2 :] = False
    return ViewContext(
        ObjectiveSettings(**objective), window=window, mask_id=MASK, word_starts=starts
    )


@st.composite
def documents(draw: st.DrawFn, fewest: int = 2) -> list[np.ndarray[Any, Any]]:
    """Sentences with distinct tokens, so that each can be traced."""
    lengths = draw(st.lists(st.integers(1, 12), min_size=fewest, max_size=20))
    ids = np.arange(10, 10 + sum(lengths), dtype=np.uint16)
    return np.split(ids, np.cumsum(lengths)[:-1])


seeds = st.integers(0, 2**32)


def flat(view: Any) -> list[int]:
    return [int(t) for piece in view for t in piece]


def draw(name: Any, document: Document, seed: int, **objective: Any) -> tuple[Any, Any]:
    return VIEWS[name](document, np.random.default_rng(seed), context(**objective))


@given(document=documents(), seed=seeds)
def test_docsplit_halves_partition_the_document_in_order(document: Document, seed: int) -> None:
    first, second = draw("docsplit", document, seed)
    assert len(first) > 0
    assert len(second) > 0
    a, b = flat(first), flat(second)
    assert a == sorted(a)
    assert b == sorted(b)
    assert not set(a) & set(b)
    assert sorted(a + b) == flat(document)
    whole = {tuple(s) for s in document}
    assert all(tuple(s) in whole for s in [*first, *second])


def test_docsplit_assigns_sentences_to_halves_evenly() -> None:
    document = [np.array([i]) for i in range(10)]
    firsts = [flat(draw("docsplit", document, seed)[0]) for seed in range(2_000)]
    share = np.array([[i in first for i in range(10)] for first in firsts]).mean(0)
    # Four standard deviations of a fair coin.
    assert np.abs(share - 0.5).max() < 4 * 0.5 / 2_000**0.5
    two = {tuple(flat(draw("docsplit", document[:2], seed)[0])) for seed in range(50)}
    assert two == {(0,), (1,)}


@given(document=documents(), seed=seeds, name=st.sampled_from(sorted(VIEWS)))
def test_seeds_reproduce(document: Document, seed: int, name: str) -> None:
    assume(sum(map(len, document)) >= 4)
    first, again = draw(name, document, seed), draw(name, document, seed)
    for one, other in zip(first, again, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert flat(one) == flat(other)


@pytest.mark.parametrize("name", ["docsplit", "span", "slice", "span+slice", "coco"])
def test_another_seed_draws_another_view(name: str) -> None:
    document = np.split(np.arange(10, 410), 40)
    views = {
        str([flat(v) for v in draw(name, document, seed, span_tokens=16)]) for seed in range(9)
    }
    assert len(views) > 1


@given(document=documents(), seed=seeds)
def test_whole_document_views(document: Document, seed: int) -> None:
    first, second = draw("simcse", document, seed)
    assert flat(first) == flat(second) == flat(document)
    only, none = draw("mlm", document, seed)
    assert flat(only) == flat(document)
    assert none is None


@given(document=documents(), seed=seeds, length=st.integers(2, 40))
def test_spans_are_neighbours(document: Document, seed: int, length: int) -> None:
    assume(sum(map(len, document)) >= 2)
    a, b = (flat(v) for v in draw("span", document, seed, span_tokens=length))
    whole = flat(document)
    assert len(a) == len(b) == min(length, len(whole) // 2)
    start = whole.index(a[0])
    assert whole[start : start + 2 * len(a)] == a + b


@given(document=documents(), seed=seeds, length=st.integers(2, 40))
def test_slices_are_masked_copies_of_one_span(document: Document, seed: int, length: int) -> None:
    a, b = (flat(v) for v in draw("slice", document, seed, span_tokens=length))
    whole = flat(document)
    for view in (a, b):
        kept = [t for t in view if t != MASK]
        assert kept
        assert kept == [t for t in whole if t in set(kept)]
        assert max(kept) - min(kept) < length
        assert all(not (x == y == MASK) for x, y in itertools.pairwise(view))


@given(document=documents(fewest=3), seed=seeds, length=st.integers(2, 40))
def test_span_slices_do_not_overlap(document: Document, seed: int, length: int) -> None:
    a, b = (flat(v) for v in draw("span+slice", document, seed, span_tokens=length))
    kept_a, kept_b = ([t for t in v if t != MASK] for v in (a, b))
    assert max(kept_a) < min(kept_b)


def test_masking_takes_whole_words() -> None:
    # Tokens below 500 begin a word, the others continue it.
    ids = np.array([10, 600, 601, 11, 12, 602, 13, 14, 603])
    words = [(10, 600, 601), (11,), (12, 602), (13,), (14, 603)]
    for seed in range(200):
        out = mask_words(ids, np.random.default_rng(seed), context()).tolist()
        for word in words:
            assert all(t in out for t in word) or not any(t in out for t in word)


def test_masking_follows_its_rate() -> None:
    ids = np.arange(10, 410)
    kept = [
        np.isin(ids, mask_words(ids, np.random.default_rng(s), context(slice_rate=0.3))).mean()
        for s in range(50)
    ]
    assert abs(np.mean(kept) - 0.7) < 4 * (0.21 / (50 * 400)) ** 0.5


def test_masking_needs_a_mask_token() -> None:
    bare = ViewContext(ObjectiveSettings(), 16, -1, np.ones(99, dtype=np.bool_))
    with pytest.raises(ValueError, match="no mask token"):
        mask_words(np.array([1, 2]), np.random.default_rng(0), bare)


def test_word_starts_of_wordpiece(tokenizer: PreTrainedTokenizerFast) -> None:
    starts = word_starts(tokenizer)
    vocabulary = tokenizer.get_vocab()
    assert not starts[vocabulary["##x"]]
    assert starts[vocabulary["bal"]]
    assert starts[vocabulary["[MASK]"]]


@given(length=st.integers(1, 300), window=st.integers(8, 256), seed=seeds)
def test_elongation_stays_within_the_window(length: int, window: int, seed: int) -> None:
    sentence = np.arange(length)
    for fixed in (0, 2):
        pieces = elongate(sentence, np.random.default_rng(seed), context(window, elongation=fixed))
        most = max(1, window // length)
        assert 1 <= len(pieces) <= most
        assert fixed == 0 or len(pieces) == min(fixed, most)
        assert all((piece == sentence).all() for piece in pieces)


def test_elongation_reaches_both_bounds() -> None:
    """The paper's example: 10 tokens in a window of 256 are repeated 1 to 25 times."""
    times = {
        len(elongate(np.arange(10), np.random.default_rng(s), context(256))) for s in range(999)
    }
    assert times == set(range(1, 26))


@given(document=documents(), seed=seeds, anchor=st.sampled_from(["first", "random"]))
def test_laser_views(document: Document, seed: int, anchor: str) -> None:
    sentences = [tuple(s) for s in document]
    one, many = draw("laser-self", document, seed, anchor=anchor)
    assert len(one) == 1
    assert tuple(one[0]) in sentences
    assert {tuple(s) for s in many} == {tuple(one[0])}
    long, rest = draw("laser-intra", document, seed, anchor=anchor)
    assert len({tuple(s) for s in long}) == 1
    assert [s for s in sentences if s != tuple(long[0])] == [tuple(s) for s in rest]
    if anchor == "first":
        assert tuple(one[0]) == tuple(long[0]) == sentences[0]


def test_random_anchor_is_not_always_the_first() -> None:
    document = np.split(np.arange(40), 8)
    anchors = {draw("laser-self", document, s, anchor="random")[0][0][0] for s in range(99)}
    assert len(anchors) == 8


@given(document=documents(fewest=1), seed=seeds, window=st.integers(2, 60))
def test_a_window_of_an_endless_repetition(document: Document, seed: int, window: int) -> None:
    [passage], [repeated] = draw("laser-window", document, seed, window=window)
    text, length = flat(document), len(passage)
    assert min(2, len(text)) <= length <= len(repeated) <= window
    start = text.index(passage[0])
    assert text[start : start + length] == passage.tolist()
    phase = passage.tolist().index(repeated[0])
    assert repeated.tolist() == [passage[(phase + i) % length] for i in range(len(repeated))]


def test_windows_of_repetitions_differ_in_passage_and_offset() -> None:
    document = np.split(np.arange(400), 20)
    drawn = [draw("laser-window", document, seed, window=128) for seed in range(300)]
    lengths = np.array([len(passage) for [passage], _ in drawn])
    copies = np.array([len(repeated) / len(passage) for [passage], [repeated] in drawn])
    # log-uniform from 2 to 128: a third below 8, a third above 32
    assert np.mean(lengths < 8) == pytest.approx(1 / 3, abs=0.1)
    assert np.mean(lengths > 32) == pytest.approx(1 / 3, abs=0.1)
    assert copies.max() > 20
    assert any(passage[0] != repeated[0] for [passage], [repeated] in drawn)


def test_passages_begin_with_a_word() -> None:
    tail = VOCABULARY // 2
    document = [np.array([i if i % 4 == 0 else tail + i for i in range(80)])]
    begun = {int(draw("laser-window", document, seed, window=32)[0][0][0]) for seed in range(200)}
    assert {i % 4 for i in begun} == {0}
    assert len(begun) > 8


def test_a_mixture_draws_each_kind_by_its_share() -> None:
    document = np.split(np.arange(40), 8)
    settings = ObjectiveSettings(view="docsplit", mix=("laser-self",), mix_share=0.25)

    def elongated(objective: ObjectiveSettings, seed: int) -> bool:
        view = view_of(objective)
        assert view is not None
        first, _ = view(document, np.random.default_rng(seed), context())
        return [tuple(piece) for piece in first] == [tuple(document[0])]

    assert sum(elongated(settings, seed) for seed in range(2000)) == pytest.approx(500, abs=60)
    # one in 254 splits has a half that is only the first sentence
    pure = settings.model_copy(update={"mix": ()})
    assert sum(elongated(pure, seed) for seed in range(2000)) < 30
    both = settings.model_copy(update={"mix": ("simcse", "laser-self"), "mix_share": 0.5})
    assert sum(elongated(both, seed) for seed in range(2000)) == pytest.approx(500, abs=60)


@pytest.mark.parametrize("kinds", [("mlm", "docsplit"), ("docsplit", "mlm")])
def test_a_mixture_needs_two_views(kinds: tuple[Any, Any]) -> None:
    with pytest.raises(ValidationError, match="mlm makes only one"):
        ObjectiveSettings(view=kinds[0], mix=(kinds[1],))


@given(document=documents(), seed=seeds)
def test_coco_takes_two_different_sentences(document: Document, seed: int) -> None:
    first, second = draw("coco", document, seed)
    sentences = [tuple(s) for s in document]
    assert len(first) == len(second) == 1
    assert tuple(first[0]) in sentences
    assert tuple(second[0]) in sentences
    assert tuple(first[0]) != tuple(second[0])


@pytest.mark.parametrize("name", ["docsplit", "laser-intra", "coco"])
def test_one_sentence_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="one sentence"):
        draw(name, [np.array([5, 6])], 0)


@given(document=documents(), window=st.integers(1, 30), most=st.integers(2, 9))
def test_windows_hold_the_text_in_order(document: Document, window: int, most: int) -> None:
    windows = pack_windows(list(document), window, most)
    assert 1 <= len(windows) <= most
    assert all(1 <= len(w) <= window for w in windows)
    packed = [int(t) for w in windows for t in w]
    assert packed == flat(document)[: len(packed)]
    if len(windows) < most:
        assert packed == flat(document)
    ends = set(np.cumsum([len(s) for s in document]).tolist())
    if max(map(len, document)) <= window:
        assert all(end in ends for end in np.cumsum([len(w) for w in windows]).tolist())


@given(document=documents(), window=st.integers(1, 30))
def test_a_single_window_is_filled(document: Document, window: int) -> None:
    (only,) = pack_windows(list(document), window, 1)
    assert only.tolist() == flat(document)[:window]
