"""Heads on vectors whose classes are known."""

from __future__ import annotations

import time

import numpy as np
import pytest

from docsplit.heads import training
from docsplit.heads.examples import Examples
from docsplit.heads.learn import learn
from docsplit.heads.network import Network, Vectors, softmax
from docsplit.heads.training import Labels


def blobs(classes: int, each: int, spread: float, seed: int = 0) -> tuple[Vectors, Labels]:
    """Unit vectors around one random centre for each class."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, 32))
    labels = np.repeat(np.arange(classes), each)
    vectors = centres[labels] + spread * rng.standard_normal((len(labels), 32))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), labels


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_a_head_separates_separate_classes(classes: int) -> None:
    vectors, labels = blobs(classes, 8, 0.3)
    trained = training.train(vectors, labels, time.monotonic() + 60)
    assert trained.accuracy > 0.95
    probabilities = trained.network.probabilities(vectors)
    assert probabilities.shape == (len(labels), classes)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert (probabilities.argmax(axis=1) == labels).all()


def test_cross_validation_reports_chance_for_random_labels() -> None:
    classes = 4
    vectors, labels = blobs(classes, 30, 0.3)
    shuffled = np.random.default_rng(1).permutation(labels)
    trained = training.train(vectors, shuffled, time.monotonic() + 60)
    assert trained.accuracy < 0.45
    # calibrated, a head without knowledge gives even odds
    assert trained.log_loss == pytest.approx(np.log(classes), rel=0.15)


def test_calibration_lowers_the_log_loss_of_held_out_examples() -> None:
    vectors, labels = blobs(4, 40, 2.5)
    head = training.fit(vectors[::2], labels[::2], time.monotonic() + 60)
    held = head.logits(vectors[1::2])
    temperature = training.calibrate(held, labels[1::2])
    calibrated = training.log_loss(held, labels[1::2], temperature)
    for other in (1.0, temperature * 2, temperature / 2):
        assert calibrated < training.log_loss(held, labels[1::2], other)


def test_ten_right_answers_do_not_mean_certainty() -> None:
    logits = np.array([[30.0, 0.0], [0.0, 30.0]] * 5, dtype=np.float32)
    labels = np.array([0, 1] * 5)
    temperature = training.calibrate(logits, labels)
    assert softmax(logits, temperature).max() == pytest.approx(11 / 12, abs=0.01)


def test_the_same_examples_give_the_same_head() -> None:
    vectors, labels = blobs(3, 5, 1.0)
    one, two = (training.fit(vectors, labels, time.monotonic() + 60) for _ in range(2))
    assert np.array_equal(one.logits(vectors), two.logits(vectors))


def test_a_deadline_ends_training() -> None:
    vectors, labels = blobs(3, 5, 1.0)
    with pytest.raises(TimeoutError):
        training.train(vectors, labels, time.monotonic() - 1)


def test_a_stored_head_is_the_same_head() -> None:
    vectors, labels = blobs(3, 5, 1.0)
    head = training.train(vectors, labels, time.monotonic() + 60).network
    again = Network.from_bytes(head.to_bytes())
    assert again.temperature == head.temperature
    assert np.array_equal(again.probabilities(vectors), head.probabilities(vectors))


def test_softmax_accepts_large_logits() -> None:
    assert softmax(np.array([[1000.0, 0.0]], dtype=np.float32)).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("multi_label", [False, True])
def test_copies_of_a_text_do_not_judge_themselves(multi_label: bool) -> None:
    vectors = np.random.default_rng(1).standard_normal((24, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts, labels = [str(n) for n in range(24)], [["a"], ["b"]] * 12
    copied = Examples(texts * 3, labels * 3, multi_label)
    quality = "subset_accuracy" if multi_label else "accuracy"
    learnt = learn(np.vstack([vectors] * 3), copied, time.monotonic() + 60)
    found = learnt.report
    # random labels cannot be learnt
    assert found[quality] < 0.8
    # the same vectors with other texts: copies judge themselves
    apart = Examples([str(n) for n in range(72)], labels * 3, multi_label)
    other = learn(np.vstack([vectors] * 3), apart, time.monotonic() + 60)
    fooled = other.report
    assert fooled[quality] > 0.9
    # copies are no further evidence: the head is that of the originals
    once = learn(vectors, Examples(texts, labels, multi_label), time.monotonic() + 60).network
    assert np.array_equal(learnt.network.probabilities(vectors), once.probabilities(vectors))
    assert not np.array_equal(other.network.probabilities(vectors), once.probabilities(vectors))
    assert found["temperature"] > 2 * fooled["temperature"]


def test_each_label_needs_two_texts() -> None:
    examples = Examples(["one", "two", "three", "three"], [["a"], ["a"], ["b"], ["b"]])
    with pytest.raises(ValueError, match="all examples of 'b' have the same text"):
        examples.check_texts()
    Examples(["one", "two", "three", "four"], examples.labels).check_texts()
