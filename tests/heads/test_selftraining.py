"""Documents without labels help when there are few labels."""

from __future__ import annotations

import time

import numpy as np
import pytest

from docsplit.heads import training
from docsplit.heads.network import Network, Vectors
from docsplit.heads.training import LEAST, SHARE, WEIGHT, Labels, extend
from tests.conftest import Server
from tests.index.conftest import call, upsert
from tests.index.conftest import index as index

CLASSES = 4


def clouds(rows: int, seed: int) -> tuple[Vectors, Labels]:
    """Unit vectors in one cloud for each class, and the class of each."""
    centres = np.random.default_rng(0).standard_normal((CLASSES, 32))
    draw = np.random.default_rng(seed)
    labels = np.arange(rows) % CLASSES
    vectors = centres[labels] + 1.5 * draw.standard_normal((rows, 32))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), labels


def accuracy(network: Network) -> float:
    vectors, labels = clouds(400, seed=3)
    return float((network.logits(vectors).argmax(axis=1) == labels).mean())


def test_unlabelled_documents_raise_accuracy_on_unseen_ones() -> None:
    vectors, labels = clouds(3 * CLASSES, seed=1)
    deadline = time.monotonic() + 60
    unhelped = training.train(vectors, labels, deadline)
    helped = training.train(vectors, labels, deadline, unlabelled=clouds(300, seed=2)[0])
    # a hidden layer would learn the errors of the guesses
    assert [len(one.network.weights) for one in (unhelped, helped)] == [2, 1]
    noise = np.random.default_rng(4).standard_normal((300, 32)).astype(np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    misled = training.train(vectors, labels, deadline, unlabelled=noise)
    assert accuracy(helped.network) > accuracy(unhelped.network) + 0.03
    assert accuracy(helped.network) > accuracy(misled.network) + 0.03


def test_the_surest_guesses_are_added_and_weigh_less() -> None:
    vectors, labels = clouds(3 * CLASSES, seed=1)
    unlabelled, truth = clouds(200, seed=2)
    rows, guesses, weights = extend(vectors, labels, unlabelled)
    added = len(rows) - len(vectors)
    assert np.array_equal(rows[: len(vectors)], vectors)
    assert np.array_equal(guesses[: len(vectors)], labels)
    assert len(guesses) == len(weights) == len(rows)
    assert set(weights[: len(vectors)]) == {WEIGHT}
    assert set(weights[len(vectors) :]) == {1.0}
    assert abs(added - SHARE * len(unlabelled)) <= CLASSES * LEAST
    known = {row.tobytes(): label for row, label in zip(unlabelled, truth, strict=True)}
    added_truth = np.array([known[row.tobytes()] for row in rows[len(vectors) :]])
    assert (added_truth == guesses[len(vectors) :]).mean() > 0.8


def test_no_unlabelled_documents_change_nothing() -> None:
    vectors, labels = clouds(3 * CLASSES, seed=1)
    rows, guesses, _ = extend(vectors, labels, np.zeros((0, 32), dtype=np.float32))
    assert np.array_equal(rows, vectors)
    assert np.array_equal(guesses, labels)


def test_over_http(server: Server, index: str) -> None:
    kinds = {"cooking": "Simmer the soup with", "football": "The striker scored after"}
    texts = [f"{start} {word}" for start in kinds.values() for word in ("an hour", "salt", "half")]
    labels = [kind for kind in kinds for _ in range(3)]
    body = {"inputs": texts, "labels": labels, "unlabelled": index}
    path = f"/classifiers/{index}"
    assert "no documents" in call(server, "PUT", path, body, status=422)["error"]
    call(server, "PUT", path, body | {"unlabelled": "nowhere"}, status=404)
    call(server, "GET", path, status=404)
    upsert(server, index, *({"id": str(i), "text": f"{t} again"} for i, t in enumerate(texts)))
    assert call(server, "PUT", path, body)["unlabelled"] == len(texts)
    assert "unlabelled" not in call(server, "PUT", path, body | {"unlabelled": None})
    call(server, "PUT", path, body)
    assert call(server, "POST", f"{path}/retrain")["unlabelled"] == len(texts)
    several = {"labels": [[label] for label in labels], "multi_label": True}
    assert "multi_label" in call(server, "PUT", path, body | several, status=422)["error"]


@pytest.mark.parametrize("unlabelled", ["../up", "", 3])
def test_an_invalid_index_name_is_refused(server: Server, unlabelled: object) -> None:
    body = {"inputs": ["a", "b", "c", "d"], "labels": ["x", "x", "y", "y"]}
    call(server, "PUT", "/classifiers/x", body | {"unlabelled": unlabelled}, status=422)
