"""Heads with independent labels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from zipfile import BadZipFile

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from docsplit.heads import multilabel
from docsplit.heads.multilabel import Indicators, folds
from docsplit.heads.network import Network, Vectors, sigmoid
from tests.conftest import NIGHTLY, Server
from tests.heads.test_classify import MONEY, SPORT, classify
from tests.index.conftest import call

WEATHER = [
    "Heavy rain and strong wind are expected on Sunday.",
    "The storm brought snow to the hills.",
    "It will be sunny and warm all week.",
    "Fog and frost made the morning cold.",
    "Thunder and hail crossed the coast.",
]
BOTH = [f"{sport} {weather}" for sport, weather in zip(SPORT, WEATHER, strict=True)]
EXAMPLES = {
    "inputs": SPORT + WEATHER + BOTH + MONEY,
    "labels": [["sport"]] * 5 + [["weather"]] * 5 + [["sport", "weather"]] * 5 + [[]] * 5,
    "multi_label": True,
}


def marked(examples: int, spread: float) -> tuple[Vectors, Indicators]:
    """Unit vectors: the sum of one direction for each of four random labels, plus noise."""
    draw = np.random.default_rng(0)
    directions = draw.standard_normal((4, 32))
    indicators = (draw.random((examples, 4)) < [0.5, 0.4, 0.3, 0.2]).astype(np.uint8)
    vectors = indicators @ directions + spread * draw.standard_normal((examples, 32))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), indicators


def test_a_head_learns_each_label_independently() -> None:
    vectors, indicators = marked(120, 0.5)
    trained = multilabel.train(vectors[:80], indicators[:80], time.monotonic() + 120)
    assert trained.subset_accuracy > 0.7
    assert min(trained.micro_f1, trained.macro_f1) > 0.85
    guessed = trained.network.probabilities(vectors[80:]) >= 0.5
    assert (guessed == indicators[80:]).mean() > 0.9
    assert not np.allclose(guessed.sum(axis=1), 1)


def test_cross_validation_reports_chance_for_random_labels() -> None:
    vectors, indicators = marked(80, 0.5)
    shuffled = np.random.default_rng(1).permutation(indicators)
    trained = multilabel.train(vectors, shuffled, time.monotonic() + 120)
    assert trained.subset_accuracy < 0.4
    shares = shuffled.mean(axis=0)
    entropy = -(shares * np.log(shares) + (1 - shares) * np.log(1 - shares)).mean()
    # calibrated, a head without knowledge is hardly worse than the shares, or than even odds
    assert entropy * 0.9 < trained.log_loss < np.log(2) * 1.15


def test_calibration_lowers_the_log_loss() -> None:
    vectors, indicators = marked(160, 2.5)
    logits = multilabel.fit(vectors[::2], indicators[::2], time.monotonic() + 60).logits(
        vectors[1::2]
    )
    held = indicators[1::2]
    temperature = multilabel.calibrate(logits, held)
    calibrated = multilabel.log_loss(logits, held, temperature)
    for other in (temperature * 2, temperature / 2):
        assert calibrated < multilabel.log_loss(logits, held, other)


def test_a_stored_head_is_the_same_head() -> None:
    vectors, indicators = marked(40, 1.0)
    head = multilabel.fit(vectors, indicators, time.monotonic() + 60)
    again = Network.from_bytes(head.to_bytes())
    assert again.kind == "sigmoid"
    assert np.array_equal(again.probabilities(vectors), head.probabilities(vectors))


def test_a_flipped_bit_never_gives_another_head() -> None:
    draw = np.random.default_rng(0)
    weights = draw.normal(size=(4, 3)).astype(np.float32), draw.normal(size=(3, 2)).astype("f4")
    biases = np.zeros(3, np.float32), np.zeros(2, np.float32)
    head = Network(weights, biases, 0.7, "sigmoid")
    vectors = np.eye(4, dtype=np.float32)
    blob = head.to_bytes()
    # from the list of the archive's members on: the members have checksums
    for place in range(blob.index(b"PK\1\2"), len(blob)):
        # every byte in every run, every bit by night
        for bit in range(8) if NIGHTLY else (place % 8,):
            flipped = bytearray(blob)
            flipped[place] ^= 1 << bit
            with suppress(BadZipFile, EOFError, KeyError, ValueError):
                again = Network.from_bytes(bytes(flipped))
                assert (again.kind, again.shape) == ("sigmoid", (4, 2)), (place, bit)
                assert np.array_equal(again.probabilities(vectors), head.probabilities(vectors))


def test_sigmoid_accepts_large_logits() -> None:
    logits = np.array([[1000.0, 0.0, -1000.0]], dtype=np.float32)
    assert sigmoid(logits).tolist() == [[1.0, 0.5, 0.0]]


def test_every_fold_has_its_share_of_every_label() -> None:
    _, indicators = marked(203, 1.0)
    draw = np.random.default_rng(2)

    def unevenness(fold: NDArray[np.int64]) -> float:
        held = np.array([indicators[fold == each].sum(axis=0) for each in range(5)])
        return float((held.max(axis=0) - held.min(axis=0)).max())

    assert unevenness(folds(indicators, 5)) <= 2
    assert unevenness(draw.permutation(np.arange(203) % 5)) > 2


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=4, max_size=40),
    st.integers(2, 5),
)
def test_every_example_has_one_fold(rows: list[list[int]], number: int) -> None:
    indicators = np.array(rows)
    fold = folds(indicators, number)
    assert set(fold.tolist()) <= set(range(number))
    assert np.array_equal(fold, folds(indicators, number))


@pytest.fixture(scope="module")
def tags(server: Server) -> Iterator[str]:
    """The name of a trained multi-label classifier."""
    call(server, "PUT", "/classifiers/tags", EXAMPLES)
    yield "tags"
    httpx.delete(f"{server.url}/classifiers/tags")


def test_every_label_has_a_probability(server: Server, tags: str) -> None:
    said = call(server, "GET", f"/classifiers/{tags}")
    assert said["multi_label"]
    assert said["outputs"] == ["sport", "weather"]
    assert (said["labels"], said["examples"]) == ({"sport": 10, "weather": 10}, 20)
    assert "accuracy" not in said
    assert {"micro_f1", "macro_f1", "subset_accuracy", "log_loss"} <= set(said)
    texts = [
        "The final was postponed because rain flooded the football pitch.",
        "The goalkeeper saved a penalty.",
        "Shareholders asked the bank about bonds.",
    ]
    answers = classify(server, inputs=texts, classifier=tags)
    held = [{p["label"] for p in answer if p["score"] >= 0.5} for answer in answers]
    assert held == [{"sport", "weather"}, {"sport"}, set()]
    for answer in answers:
        assert len(answer) == 2
        assert answer[0]["score"] >= answer[1]["score"]
    assert sum(p["score"] for p in answers[0]) > 1
    above = classify(server, inputs=texts, classifier=tags, threshold=0.5)
    assert [{p["label"] for p in answer} for answer in above] == held
    assert above[2] == []
    assert classify(server, inputs=texts, classifier=tags, top_k=1) == [a[:1] for a in answers]
    raw = classify(server, inputs=texts, classifier=tags, threshold=0.5, raw_scores=True)
    assert [[p["label"] for p in a] for a in raw] == [[p["label"] for p in a] for a in above]
    assert all(p["score"] >= 0 for a in raw for p in a)


def test_a_classifier_is_trained_again(server: Server, tags: str) -> None:
    before = call(server, "GET", f"/classifiers/{tags}")
    after = call(server, "POST", f"/classifiers/{tags}/retrain")
    assert after["multi_label"]
    assert after["micro_f1"] == before["micro_f1"]


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"labels": ["a", "b"]}, "give a list of labels for each document"),
        ({"labels": [["a"], ["b"]], "multi_label": False}, "only with multi_label"),
        ({"labels": [["a"], "b"]}, "not both"),
        ({"labels": [[], []]}, "no label"),
        ({"labels": [["a"], []]}, "only one label"),
        ({"labels": [["a"], ["b", "b"]]}, "item 1 names a label twice"),
        ({"labels": [["a"], ["unsure", "a"]]}, "threshold"),
        ({"labels": [["a", "b"], ["a"]]}, "all examples"),
        ({"labels": [["a"], ["x" * 129]]}, "item 1: a label has 1 to 128"),
        ({"labels": [["a"], [["b"]]]}, "item 1"),
        ({"labels": [["a"], [3]]}, "item 1"),
        ({"multi_label": "yes"}, "multi_label"),
    ],
)
def test_a_refused_training_changes_nothing(
    server: Server, tags: str, change: dict[str, Any], hint: str
) -> None:
    before = call(server, "GET", f"/classifiers/{tags}")
    body: dict[str, Any] = {"inputs": ["x"] * 4, "labels": [["a"], ["b"]], "multi_label": True}
    body |= change
    body["labels"] = body["labels"] * 2
    said = call(server, "PUT", f"/classifiers/{tags}", body, status=422)
    assert hint in said["error"]
    assert call(server, "GET", f"/classifiers/{tags}") == before
