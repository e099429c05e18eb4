"""Classifiers from documents of an index, and their weights for use elsewhere."""

from __future__ import annotations

import io
from typing import Any

import httpx
import numpy as np
import pytest

from tests.conftest import Server
from tests.heads.conftest import PACKAGING, TRAINED
from tests.index.conftest import call, upsert
from tests.index.conftest import index as index

Labelled = dict[str, list[str]]


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """Its vectors hold the words, which tell both subjects apart."""
    return light_server


def documents_embedded(server: Server) -> float:
    return server.metric("docsplit_documents_total")


def test_vectors_come_from_the_index(
    server: Server,
    subjects: str,
    library: str,
    labelled: Labelled,
    proposals: list[dict[str, Any]],
) -> None:
    before = documents_embedded(server)
    made = call(server, "PUT", "/classifiers/indexed", {"index": library, **labelled})
    assert documents_embedded(server) == before
    assert made["labels"] == {"packaging": TRAINED, "typing": TRAINED}
    texts = {document["id"]: document["text"] for document in proposals}
    body = {"inputs": [texts[i] for i in labelled["ids"]], "labels": labelled["labels"]}
    given = call(server, "PUT", "/classifiers/given", body)
    assert documents_embedded(server) > before
    for score in ("accuracy", "log_loss", "temperature"):
        assert given[score] == pytest.approx(made[score], abs=0.01)
    rest = [proposals[TRAINED], proposals[-1]]
    asked = {"inputs": [document["text"] for document in rest], "classifier": "indexed"}
    answers = call(server, "POST", "/classify", asked)
    assert [answer[0]["label"] for answer in answers] == ["packaging", "typing"]
    for name in ("indexed", "given"):
        call(server, "DELETE", f"/classifiers/{name}", status=204)


def test_the_examples_outlive_the_index(server: Server, index: str) -> None:
    words = {"sport": "the team won the match", "money": "the bank raised its rates"}
    documents = [
        {"id": f"{label}-{i}", "text": f"Report {i}: {text}."}
        for label, text in words.items()
        for i in range(3)
    ]
    upsert(server, index, *documents)
    ids = [document["id"] for document in documents]
    labels = [name.split("-")[0] for name in ids]
    body = {"index": index, "ids": ids, "labels": labels}
    made = call(server, "PUT", "/classifiers/outlives", body)
    call(server, "DELETE", f"/indexes/{index}", status=204)
    again = call(server, "POST", "/classifiers/outlives/retrain")
    assert again["labels"] == made["labels"]
    assert again["accuracy"] == made["accuracy"]
    call(server, "DELETE", "/classifiers/outlives", status=204)


IDS = [f"pep-{number}" for number in PACKAGING[:4]]
LABELS = ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("body", "status", "hint"),
    [
        ({"index": "nowhere", "ids": IDS, "labels": LABELS}, 404, "no index"),
        ({"ids": ["x", IDS[0], "y", "z"], "labels": LABELS}, 422, "3 of 4 are not in the index"),
        ({"ids": [IDS[0], IDS[1], "y", IDS[2]], "labels": LABELS}, 422, "position 2"),
        ({"ids": [*IDS[:3], IDS[0]], "labels": LABELS}, 422, "positions 0 and 3 have the same id"),
        ({"ids": IDS, "labels": LABELS[:3]}, 422, "4 ids and 3 labels"),
        ({"ids": IDS, "labels": LABELS, "inputs": ["x"] * 4}, 422, "either inputs"),
        ({"ids": None, "labels": LABELS}, 422, "either inputs"),
        ({"index": None, "ids": IDS, "labels": LABELS}, 422, "either inputs"),
        ({"ids": [], "labels": LABELS}, 422, "ids"),
        ({"ids": [1, 2, 3, 4], "labels": LABELS}, 422, "ids"),
        ({"index": "../up", "ids": IDS, "labels": LABELS}, 422, "index"),
    ],
)
def test_a_refused_training_changes_nothing(
    server: Server, subjects: str, library: str, body: dict[str, Any], status: int, hint: str
) -> None:
    before = call(server, "GET", f"/classifiers/{subjects}")
    said = call(server, "PUT", f"/classifiers/{subjects}", {"index": library} | body, status=status)
    assert hint in said["error"]
    for name in (*IDS, "nowhere", "../up"):
        assert name not in said["error"]
    assert call(server, "GET", f"/classifiers/{subjects}") == before


def test_other_programs_can_run_the_network(
    server: Server, subjects: str, proposals: list[dict[str, Any]]
) -> None:
    answer = httpx.get(f"{server.url}/classifiers/{subjects}/network")
    assert answer.headers["content-type"] == "application/octet-stream"
    held = np.load(io.BytesIO(answer.content), allow_pickle=False)
    assert str(held["kind"]) == "softmax"
    said = call(server, "GET", f"/classifiers/{subjects}")
    assert said["temperature"] == float(held["temperature"])
    text = proposals[-1]["text"]
    [vector] = call(server, "POST", "/embed", {"inputs": text})
    hidden = np.maximum(np.array(vector) @ held["weight0"] + held["bias0"], 0)
    logits = (hidden @ held["weight1"] + held["bias1"]) / held["temperature"]
    expected = np.exp(logits) / np.exp(logits).sum()
    asked = {"inputs": text, "classifier": subjects}
    [found] = call(server, "POST", "/classify", asked)
    scores = {prediction["label"]: prediction["score"] for prediction in found}
    assert [scores[label] for label in said["outputs"]] == pytest.approx(expected, abs=1e-4)
    call(server, "GET", "/classifiers/nowhere/network", status=404)
