"""Suggestions of documents to label next."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import kmeans_plusplus

from docsplit.heads.network import Network
from service.learning.suggest import MOST_SCORES, choose, errors, margins
from tests.conftest import Server
from tests.heads.conftest import PACKAGING, TYPING
from tests.heads.test_multilabel import EXAMPLES
from tests.index.conftest import call, upsert
from tests.index.conftest import index as index

SOFTMAX = Network((), ())
SIGMOID = Network((), (), kind="sigmoid")


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """Its vectors hold the words, which tell both subjects apart."""
    return light_server


def suggest(server: Server, name: str, status: int = 200, **body: Any) -> Any:
    return call(server, "POST", f"/classifiers/{name}/suggest", body, status=status)


def test_margins() -> None:
    rows = np.array([[0.7, 0.2, 0.1], [0.5, 0.5, 0.0]])
    assert margins(rows, SOFTMAX) == pytest.approx([0.5, 0.0])
    assert margins(rows, SIGMOID) == pytest.approx([0.4, 0.0])


def gradients(wrong: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The gradients, computed in full: ``[rows, outputs * dimensions]``."""
    return (wrong[:, :, None] * vectors[:, None, :]).reshape(len(vectors), -1)


def test_errors_are_those_of_the_most_probable_label() -> None:
    rows = np.array([[0.75, 0.25], [0.5, 0.5]])
    assert errors(rows, multi_label=False).tolist() == [[-0.25, 0.25], [-0.5, 0.5]]
    assert errors(np.array([[0.75, 0.25]]), multi_label=True).tolist() == [[-0.25, 0.25]]
    vectors = np.array([[1, 2], [3, 4]])
    found = gradients(errors(rows, multi_label=False), vectors)
    assert found.tolist() == [[-0.25, -0.5, 0.25, 0.5], [-1.5, -2.0, 1.5, 2.0]]


def drawn(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors of three outputs, and vectors."""
    draw = np.random.default_rng(seed)
    logits = draw.standard_normal((rows, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return errors(probabilities, multi_label=False), draw.standard_normal((rows, 8))


@pytest.mark.parametrize("number", [1, 2, 20])
def test_the_choice_equals_k_means_on_the_gradients(number: int) -> None:
    wrong, vectors = drawn(100, seed=0)
    centres = kmeans_plusplus(gradients(wrong, vectors), number, random_state=0)[1]
    assert choose(wrong, vectors, number) == sorted(centres)
    if number > 2:
        other, elsewhere = drawn(100, seed=1)
        assert choose(other, elsewhere, number) != sorted(centres)


def test_the_choice_covers_different_documents() -> None:
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((8, 64)) * 10
    # 300 of one kind and 7 of others: a random draw would hardly find these
    kinds = np.array([0] * 300 + list(range(1, 8)))
    rows = centres[kinds] + 0.1 * draw.standard_normal((307, 64))
    assert len(set(kinds[choose(np.ones((307, 1)), rows, 8)])) == 8
    assert len(set(kinds[draw.choice(307, 8, replace=False)])) < 8


def test_the_choice_repeats_no_equal_document() -> None:
    wrong, rows = np.ones((20, 2)), np.ones((20, 4), np.float32)
    chosen = choose(wrong, rows, 5)
    assert len(set(chosen)) == len(chosen) == 5
    assert choose(wrong[:3], rows[:3], 5) == [0, 1, 2]
    assert choose(wrong, rows, 5) == chosen


def test_the_choice_takes_little_memory_for_the_largest_heads() -> None:
    outputs, dimensions = 4096, 384
    rows = MOST_SCORES // outputs
    draw = np.random.default_rng(0)
    probabilities = draw.random((rows, outputs))
    vectors = draw.standard_normal((rows, dimensions)).astype(np.float32)
    tracemalloc.start()
    chosen = choose(errors(probabilities, multi_label=False), vectors, 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(chosen) == 20
    # the gradients would take 6 GB
    assert peak < 150_000_000


def test_labelled_documents_are_never_suggested(
    server: Server, subjects: str, library: str, labelled: dict[str, list[str]]
) -> None:
    every = suggest(server, subjects, index=library, count=100)
    ids = [one["id"] for one in every]
    assert len(ids) == len(set(ids)) == len(PACKAGING) + len(TYPING) - len(labelled["ids"])
    assert not set(ids) & set(labelled["ids"])
    assert suggest(server, subjects, index=library, count=100) == every
    few = suggest(server, subjects, index=library, count=4)
    assert len(few) == 4
    for one in every:
        two = [p["score"] for p in one["probabilities"]]
        assert sum(two) == pytest.approx(1)
        assert one["margin"] == pytest.approx(two[0] - two[1])
        assert one["title"] == one["id"].replace("pep-", "PEP ")
    # a random order could start with any margin
    held = [one["margin"] for one in every]
    assert held == sorted(held)
    assert held != [held[i] for i in np.random.default_rng(0).permutation(len(held))]


def test_suggestions_match_the_filter(server: Server, subjects: str, library: str) -> None:
    where = {"field": "number", "lt": 500}
    found = suggest(server, subjects, index=library, count=100, filter=where)
    assert found
    assert all(int(one["id"].removeprefix("pep-")) < 500 for one in found)
    said = suggest(server, subjects, 422, index=library, filter={"field": "year", "lt": 1})
    assert "not declared" in said["error"]


def test_the_text_decides_whether_a_document_is_labelled(server: Server, index: str) -> None:
    call(server, "PUT", "/classifiers/tagged", EXAMPLES)
    texts = EXAMPLES["inputs"]
    assert isinstance(texts, list)
    new = [
        "The regatta was sailed in a gale.",
        "A new stadium is built.",
        "A new stadium is built.",
    ]
    documents = [{"id": f"d{i}", "text": text} for i, text in enumerate([*texts, *new])]
    upsert(server, index, *documents)
    found = suggest(server, "tagged", index=index, count=100)
    # one of several equal texts is enough
    assert {one["id"] for one in found} == {"d20", "d21"}
    call(server, "DELETE", "/classifiers/tagged", status=204)


def test_bad_requests(server: Server, subjects: str, library: str, index: str) -> None:
    assert suggest(server, subjects, index=index) == []
    assert "no classifier" in suggest(server, "nowhere", 404, index=library)["error"]
    assert "no index" in suggest(server, subjects, 404, index="nowhere")["error"]
    suggest(server, subjects, 422)
    suggest(server, subjects, 422, index=library, count=0)
    suggest(server, subjects, 422, index=library, count=201)
    suggest(server, subjects, 422, index="../x")
