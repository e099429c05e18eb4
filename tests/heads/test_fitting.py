"""The project's L-BFGS fit gives the results of scikit-learn's classifiers, and can be stopped."""

from __future__ import annotations

import threading
import time
import tracemalloc
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from docsplit.heads import citation, multilabel, training
from docsplit.heads.network import Vectors, softmax
from docsplit.heads.training import Layers, Objective, descend
from tests.conftest import NIGHTLY

ITERATIONS = 25


def examples(rows: int, outputs: int, multi_label: bool) -> tuple[Vectors, np.ndarray]:
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((outputs, 24))
    labels = np.arange(rows) % outputs
    vectors = (centres[labels] + draw.standard_normal((rows, 24))).astype(np.float32)
    if not multi_label:
        return vectors, labels
    return vectors, (draw.random((rows, outputs)) < 0.4).astype(np.uint8)


def logits(layers: Layers, rows: Vectors) -> np.ndarray:
    return layers.outputs(rows)[-1]


def fitted(
    vectors: Vectors, targets: np.ndarray, outputs: int, counts: np.ndarray | None
) -> Layers:
    objective = Objective(vectors, targets, outputs, 0.1, counts, lambda: None)
    start = Layers.drawn((vectors.shape[1], 16, objective.logits))
    return descend(objective, start, ITERATIONS)[0]


@pytest.mark.parametrize(
    ("outputs", "multi_label", "weighted"),
    [(2, False, False), (5, False, False), (5, False, True), (2, True, False), (4, True, False)],
)
def test_a_network_equals_that_of_scikit_learn(
    monkeypatch: pytest.MonkeyPatch, outputs: int, multi_label: bool, weighted: bool
) -> None:
    vectors, targets = examples(90, outputs, multi_label)
    counts = np.random.default_rng(1).uniform(0.5, 3, len(vectors)) if weighted else None
    model = MLPClassifier((16,), solver="lbfgs", alpha=0.1, max_iter=ITERATIONS, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # with float32 vectors it would compute in float32
        model.fit(vectors.astype(np.float64), targets, sample_weight=counts)
    wanted = np.maximum(vectors @ model.coefs_[0] + model.intercepts_[0], 0)
    wanted = wanted @ model.coefs_[1] + model.intercepts_[1]
    whole = logits(fitted(vectors, targets, outputs, counts), vectors)
    assert np.abs(whole - wanted).max() < 1e-3
    # the same result in parts
    monkeypatch.setattr(training, "PART_OUTPUTS", 400)
    assert np.abs(logits(fitted(vectors, targets, outputs, counts), vectors) - wanted).max() < 1e-3
    # other examples give another result
    other = fitted(vectors[::-1].copy(), targets, outputs, counts)
    assert np.abs(logits(other, vectors) - wanted).max() > 0.1


@pytest.mark.parametrize("outputs", [2, 5])
def test_a_network_without_hidden_layer_is_logistic_regression(outputs: int) -> None:
    vectors, labels = examples(120, outputs, False)
    counts = np.random.default_rng(1).uniform(0.5, 3, len(vectors))
    model = LogisticRegression(C=10.0).fit(vectors, labels, sample_weight=counts)
    objective = Objective(vectors, labels, outputs, 0.1, counts, lambda: None)
    layers, _ = descend(objective, Layers.drawn((24, objective.logits)), 100)
    given = logits(layers, vectors)
    if outputs == 2:
        given = np.hstack((np.zeros_like(given), given))
    assert np.abs(softmax(given) - model.predict_proba(vectors)).max() < 5e-3
    assert np.abs(softmax(given) - 1 / outputs).max() > 0.1


class _Stop(threading.Event):
    """Set after a number of checks; counts the checks after that."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._left = looks
        self.after = 0

    def is_set(self) -> bool:
        self._left -= 1
        if self._left < 0:
            self.after += 1
        return self._left < 0


def links() -> Iterator[citation.Candidates]:
    draw = np.random.default_rng(0)
    for _ in range(20):
        yield citation.Candidates(
            draw.standard_normal(8).astype(np.float32),
            draw.standard_normal((10, 8)).astype(np.float32),
            draw.standard_normal((10, 4)).astype(np.float32),
            np.arange(10) < 3,
            draw.standard_normal((10, 12)).astype(np.float32),
        )


@pytest.mark.parametrize("kind", ["classes", "several", "unlabelled", "features", "vectors"])
def test_a_training_ends_at_the_first_check_of_its_stop(kind: str) -> None:
    deadline = time.monotonic() + 120
    vectors, labels = examples(60, 3, False)
    indicators = examples(60, 3, True)[1]

    def train(stop: threading.Event) -> None:
        if kind == "several":
            multilabel.train(vectors, indicators, deadline, stop)
        elif kind == "features":
            citation.train(list(links()), deadline, stop)
        elif kind == "vectors":
            citation.train(list(links()), deadline, stop, "vectors")
        else:
            further = vectors[:20] if kind == "unlabelled" else None
            training.train(vectors, labels, deadline, stop, further)

    whole = _Stop(10**9)
    train(whole)
    looks = 10**9 - whole._left
    assert looks > (20 if kind == "features" else 100), "it also checks within the rounds of L-BFGS"
    for share in (0, 0.01, 0.3, 0.6, 0.95) if NIGHTLY else (0, 0.01, 0.95):
        stop = _Stop(int(looks * share))
        with pytest.raises(TimeoutError):
            train(stop)
        assert stop.after == 1


def test_parts_limit_the_memory_and_the_time_between_two_checks() -> None:
    rows, outputs = 20_000, 500
    vectors = np.random.default_rng(0).standard_normal((rows, 64)).astype(np.float32)
    labels = np.arange(rows) % outputs
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1

    objective = Objective(vectors, labels, outputs, 0.1, None, look)
    layers = Layers.drawn((64, 128, outputs))
    tracemalloc.start()
    objective.at(layers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert looks > 10
    # all logits at once would be 80 MB, and there are three such arrays
    assert peak < 50_000_000


@pytest.mark.parametrize("hidden", [0, 16])
def test_few_examples_are_fitted_in_their_span(hidden: int) -> None:
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((60, 64)).astype(np.float32)
    labels = np.arange(60) % 3
    few = training.fit(vectors[:12], labels[:12], time.monotonic() + 60, hidden=hidden)
    many = training.fit(vectors, labels, time.monotonic() + 60, hidden=hidden)
    span = np.linalg.qr(vectors[:12].T)[0]
    outside = draw.standard_normal((5, 64)).astype(np.float32)
    outside -= outside @ span @ span.T
    inside = few.logits(outside + vectors[:5])
    assert inside == pytest.approx(few.logits(vectors[:5]), abs=1e-4)
    assert np.abs(many.logits(outside + vectors[:5]) - many.logits(vectors[:5])).max() > 0.1
    if not hidden:
        model = LogisticRegression(C=1 / training.WEIGHT_DECAY, max_iter=1000)
        model.fit(vectors[:12] * training.SCALE, labels[:12])
        wanted = model.predict_proba(vectors * training.SCALE)
        assert np.abs(softmax(few.logits(vectors)) - wanted).max() < 5e-3
