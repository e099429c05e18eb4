"""The citation head on links with a known rule, and over HTTP."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from docsplit.heads import citation
from tests.conftest import Server
from tests.index.conftest import call, upsert
from tests.index.conftest import index as index


def searches(
    documents: int, *, in_vectors: bool = True, strength: float = 2.0
) -> list[citation.Candidates]:
    """Documents in groups of one topic; the later ones cite those of the era before.

    With ``in_vectors`` the search signals carry no information, and only the vectors show topic and
    era. Otherwise the vectors are noise, and linked ones are more popular by ``strength``.
    """
    draw = np.random.default_rng(0)
    topics = draw.standard_normal((8, 64))
    era = draw.standard_normal((2, 64))
    topic = np.arange(documents) % 8
    late = np.arange(documents) >= documents // 2
    vectors = topics[topic] + era[late.astype(int)] + 0.5 * draw.standard_normal((documents, 64))
    if not in_vectors:
        vectors = draw.standard_normal((documents, 64))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors.astype(np.float32)
    made = []
    for i in np.flatnonzero(late):
        others = np.delete(np.arange(documents), i)
        linked = (topic[others] == topic[i]) & ~late[others]
        signals = draw.random((len(others), 4)).astype(np.float32)
        if not in_vectors:
            signals[:, 3] += strength * linked
        # features of very different scales
        features = signals * np.array([1, 1000, 0.001, 1], np.float32) + np.array(
            [0, -500, 7, 0], np.float32
        )
        made.append(citation.Candidates(vectors[i], vectors[others], signals, linked, features))
    return made


def forever() -> float:
    return time.monotonic() + 120


@pytest.mark.parametrize("in_vectors", [True, False])
def test_it_learns_from_vectors_and_from_signals(in_vectors: bool) -> None:
    found = searches(96, in_vectors=in_vectors)
    trained = citation.train(found, forever(), inputs="vectors")
    assert trained.links == sum(int(search.linked.sum()) for search in found)
    assert (trained.citing, trained.held_out) == (48, 10)
    assert trained.mrr > trained.hybrid_mrr + 0.3
    some = found[0]
    citing = np.broadcast_to(some.query, some.found.shape)
    inputs = citation.vector_features(citing, some.found, some.signals)
    scores = trained.network.probabilities(inputs)[:, 1]
    assert scores[some.linked].mean() > scores[~some.linked].mean() + 0.3


def test_features_teach_what_scikit_learn_learns_from_them() -> None:
    found = searches(160, in_vectors=False, strength=0.5)
    trained = citation.train(found, forever())
    assert trained.mrr > trained.hybrid_mrr + 0.2
    rows = np.vstack([search.features for search in found])
    labels = np.concatenate([search.linked for search in found])
    reference = make_pipeline(StandardScaler(), LogisticRegression(C=16, tol=1e-8))
    wanted = reference.fit(rows.astype(np.float64), labels).decision_function(rows)
    ours = trained.network.logits(rows)
    np.testing.assert_allclose(ours[:, 1] - ours[:, 0], wanted, atol=0.02)
    shifted = reference.fit(rows[:, ::-1].astype(np.float64), labels).decision_function(rows)
    assert np.abs(shifted - wanted).max() > 1


@pytest.mark.parametrize("inputs", ["features", "vectors"])
def test_noise_teaches_nothing(inputs: citation.Inputs) -> None:
    found = searches(96, in_vectors=False)
    for search in found:
        search.signals[:, 3] = 0
        search.features[:, 3] = 0
    trained = citation.train(found, forever(), inputs=inputs)
    assert trained.mrr < trained.hybrid_mrr + 0.3


def test_citation_mode(server: Server, index: str) -> None:
    subjects = ["the parser", "type hints", "packaging", "async loops", "exceptions", "imports"]
    documents: list[dict[str, Any]] = []
    for number, subject in enumerate(subjects):
        for part in range(4):
            document = {"id": f"{number}-{part}", "text": f"Proposal {part} on {subject}."}
            links = [f"{number}-{other}" for other in range(part)] + ["not-there"]
            documents.append(document | {"links": links})
    upsert(server, index, *documents[:8])
    missing = {"index": index, "text": "type hints", "mode": "citation"}
    said = call(server, "POST", "/similar", missing, status=404)
    assert f"POST /indexes/{index}/citation" in said["error"]
    call(server, "GET", f"/indexes/{index}/citation", status=404)
    # two subjects have 12 links, from only six documents: enough; one subject is too few
    call(server, "DELETE", f"/indexes/{index}/documents/0-3", status=204)
    few = call(server, "POST", f"/indexes/{index}/citation", status=422)
    assert "holds 9 links" in few["error"]
    upsert(server, index, *documents)
    report = call(server, "POST", f"/indexes/{index}/citation")
    assert report["links"] == 36
    assert call(server, "GET", f"/indexes/{index}/citation") == report
    hits = call(
        server, "POST", "/similar", {"index": index, "id": "1-3", "mode": "citation", "top_k": 3}
    )
    assert {hit["id"] for hit in hits} == {"1-0", "1-1", "1-2"}
    for hit in hits:
        assert hit["score"] == hit["link_probability"] <= 1
        assert hit["direction"] == "cites"
    rest = {"index": index, "id": "1-3", "mode": "citation", "top_k": 2, "offset": 1}
    again = call(server, "POST", "/similar", rest)
    assert [hit["id"] for hit in again] == [hit["id"] for hit in hits[1:]]
    # the head multiplies the rounding of float32
    scores = [hit["score"] for hit in hits[1:]]
    assert [hit["score"] for hit in again] == pytest.approx(scores, abs=1e-4)
    [second] = call(server, "POST", "/similar", rest | {"top_k": 1, "exclude": [hits[1]["id"]]})
    assert second["id"] == hits[2]["id"]
    one_way = {"index": index, "id": "1-3", "mode": "citation", "top_k": 3}
    forward = call(server, "POST", "/similar", one_way | {"direction": "cites"})
    backward = call(server, "POST", "/similar", one_way | {"direction": "cited_by"})
    assert forward[0]["score"] == pytest.approx(hits[0]["score"], abs=1e-4)
    assert forward[0]["score"] > backward[0]["score"] + 0.01
    assert {hit["direction"] for hit in backward} == {"cited_by"}
    call(server, "POST", "/similar", missing | {"mode": "cosine", "direction": "cites"}, status=422)
    call(server, "DELETE", f"/indexes/{index}", status=204)
    call(server, "GET", f"/indexes/{index}/citation", status=404)
