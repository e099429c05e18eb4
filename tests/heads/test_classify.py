"""Classifiers over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import InferenceClient

from tests.conftest import Server, serving
from tests.index.conftest import call
from tests.other_bundle import seal_other

SPORT = [
    "The striker scored twice and the team won the match.",
    "A late goal gave the club the championship.",
    "The tennis final went to five sets.",
    "The coach praised the goalkeeper after the game.",
    "She ran the marathon in record time.",
]
MONEY = [
    "Shares fell as the bank raised interest rates.",
    "The company reported higher quarterly profits.",
    "Inflation slowed and the currency gained.",
    "Investors bought government bonds.",
    "The merger was approved by shareholders.",
]
EXAMPLES = {"inputs": SPORT + MONEY, "labels": ["sport"] * 5 + ["money"] * 5}


@pytest.fixture(scope="module")
def topics(server: Server) -> Iterator[str]:
    """The name of a trained classifier."""
    call(server, "PUT", "/classifiers/topics", EXAMPLES)
    yield "topics"
    httpx.delete(f"{server.url}/classifiers/topics")


def classify(server: Server, status: int = 200, **body: Any) -> Any:
    return call(server, "POST", "/classify", body, status=status)


def test_a_classifier_can_be_created_and_deleted(server: Server) -> None:
    made = call(server, "PUT", "/classifiers/short-lived", EXAMPLES)
    assert made["labels"] == {"money": 5, "sport": 5}
    assert made["accuracy"] >= 0.8
    assert 0 < made["macro_f1"] <= 1
    assert call(server, "GET", "/classifiers/short-lived") == made
    assert "short-lived" in call(server, "GET", "/classifiers")["classifiers"]
    again = call(server, "POST", "/classifiers/short-lived/retrain")
    assert again["accuracy"] == made["accuracy"]
    call(server, "DELETE", "/classifiers/short-lived", status=204)
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/retrain")):
        call(server, method, f"/classifiers/short-lived{path}", status=404)
    classify(server, 404, inputs="a", classifier="short-lived")


def same(predictions: list[dict[str, Any]]) -> list[Any]:
    """Labels and scores in float32: one row and two rows are multiplied by different routines."""
    return [
        {"label": p["label"], "score": pytest.approx(p["score"], rel=1e-6)} for p in predictions
    ]


def test_labels_of_unseen_texts(server: Server, topics: str) -> None:
    texts = ["The midfielder was injured in the match.", "The central bank cut rates again."]
    answers = classify(server, inputs=texts, classifier=topics)
    assert [answer[0]["label"] for answer in answers] == ["sport", "money"]
    for answer in answers:
        assert sum(p["score"] for p in answer) == pytest.approx(1)
        assert answer[0]["score"] >= answer[1]["score"]
    assert classify(server, inputs=texts, top_k=1) == [answer[:1] for answer in answers]
    raw = classify(server, inputs=texts, raw_scores=True)
    assert [r[0]["label"] for r in raw] == ["sport", "money"]
    assert sum(p["score"] for p in raw[0]) != pytest.approx(1)


def test_a_batch_of_tei_has_lists_of_one_text(server: Server, topics: str) -> None:
    texts = ["The midfielder was injured.", "The bank cut rates."]
    plain = {"inputs": texts, "classifier": topics}
    batch = plain | {"inputs": [[text] for text in texts], "truncate": None}
    assert call(server, "POST", "/predict", batch) == call(server, "POST", "/predict", plain)
    [one] = call(server, "POST", "/predict", plain | {"inputs": [texts[:1]]})
    for text in (texts[0], texts[:1]):
        assert call(server, "POST", "/predict", plain | {"inputs": text}) == same(one)
    assert classify(server, inputs=texts[0], classifier=topics) == [same(one)]
    pairs = call(server, "POST", "/predict", plain | {"inputs": [texts]}, status=422)
    assert pairs["error"] == "inputs: pairs of texts are not supported: give each text by itself"
    tokens = call(server, "POST", "/predict", plain | {"inputs": [[1, 2]]}, status=422)
    assert "token ids are not accepted" in tokens["error"]


def test_the_hub_client_reads_the_answer(server: Server, topics: str) -> None:
    client = InferenceClient(f"{server.url}/classify")
    found = client.text_classification("The goalkeeper saved a penalty.")
    assert found[0].label == "sport"


def test_none_below_the_learnt_threshold(server: Server, topics: str) -> None:
    """A text is none if its logits stand out less than those of nearly all held-out examples."""
    least = call(server, "GET", f"/classifiers/{topics}")["none_below"]
    texts = [*SPORT, "Stir the flour into the butter.", "The orbit of a moon.", "qzx", "and or the"]
    found = set()
    for text in texts:
        [raw] = classify(server, inputs=text, raw_scores=True)
        [plain], [answer] = (classify(server, inputs=text, none=none) for none in (False, True))
        logits = [one["score"] for one in raw]
        none = max(logits) - sum(logits) / len(logits) < least
        first = {"label": "none", "score": plain[0]["score"]}
        assert answer == ([first, *plain] if none else plain)
        found.add((text in SPORT, none))
    assert {(True, False), (False, True)} <= found
    [[best]] = classify(server, inputs="qzx", none=True, top_k=1)
    assert best["label"] == "none"


def test_none_is_refused_with_the_remedy_without_a_threshold(server: Server) -> None:
    own = {"inputs": SPORT + MONEY, "labels": ["none"] * 5 + ["money"] * 5}
    several = {**EXAMPLES, "labels": [[one] for one in EXAMPLES["labels"]], "multi_label": True}
    for body, remedy in ((own, "leave it out"), (several, "set threshold")):
        call(server, "PUT", "/classifiers/no-none", body)
        said = classify(server, 422, inputs="a", classifier="no-none", none=True)
        assert remedy in said["error"]
        # the control
        classify(server, inputs="a", classifier="no-none")
        call(server, "DELETE", "/classifiers/no-none", status=204)


def test_unsure_below_the_threshold(server: Server, topics: str) -> None:
    text = "The goalkeeper saved a penalty."
    [sure] = classify(server, inputs=text, threshold=0.5)
    assert sure[0]["label"] == "sport"
    [unsure] = classify(server, inputs=text, threshold=0.9999)
    assert [p["label"] for p in unsure] == ["unsure", "sport", "money"]
    assert unsure[0]["score"] == unsure[1]["score"]


@pytest.mark.parametrize(
    ("body", "status", "hint"),
    [
        ({}, 422, "inputs"),
        ({"inputs": [], "labels": []}, 422, "inputs"),
        ({"inputs": ["a"], "labels": ["x"]}, 422, "only one label"),
        ({"inputs": ["a", "b"], "labels": ["x", "x"]}, 422, "only one label"),
        ({"inputs": ["a", "b", "c"], "labels": ["x", "x", "y"]}, 422, "single example"),
        ({"inputs": ["a", "b"], "labels": ["x"]}, 422, "2 inputs and 1 labels"),
        ({"inputs": ["a", "b"] * 2, "labels": ["x", ""] * 2}, 422, "labels"),
        ({"inputs": ["a", "b"] * 2, "labels": ["x", "unsure"] * 2}, 422, "threshold"),
        ({"inputs": ["a", " "] * 2, "labels": ["x", "y"] * 2}, 400, "input 1 is empty"),
        ({"inputs": [1, 2], "labels": ["x", "y"]}, 422, "token ids"),
        ({"inputs": ["a", "b"] * 2, "labels": ["x", "y" * 129] * 2}, 422, "item 1: a label has 1"),
        ({"inputs": ["a", "b"] * 2, "labels": ["x", None] * 2}, 422, "labels: item 1"),
        ({"inputs": ["a", "b"] * 2, "labels": "x"}, 422, "labels: give a list"),
        ({"inputs": ["a", "b"] * 2, "labels": {"x": 1}}, 422, "labels: give a list"),
        ({"inputs": ["a", "b"] * 2, "labels": ["x", ["y"]] * 2}, 422, "not both"),
        ({"inputs": ["a", "b"] * 2, "labels": ["x", "y"] * 2, "background": 1}, 422, "background"),
        (
            {"inputs": ["a", "b"], "labels": ["x", "y"], "background": True},
            422,
            "single example",
        ),
        ({"inputs": ["a", " "] * 2, "labels": ["x", "y"] * 2, "background": True}, 400, "input 1"),
        (
            {"inputs": ["a"] * 4, "labels": ["x", "y"] * 2, "index": "i", "ids": ["a"]},
            422,
            "either",
        ),
        (EXAMPLES | {"index": "i"}, 422, "either"),
        (EXAMPLES | {"ids": ["a"]}, 422, "either"),
    ],
)
def test_refused_training_changes_nothing(
    server: Server, topics: str, body: dict[str, Any], status: int, hint: str
) -> None:
    before = call(server, "GET", "/classifiers/topics")
    said = call(server, "PUT", "/classifiers/topics", body, status=status)
    assert hint in said["error"]
    assert call(server, "GET", "/classifiers/topics") == before


@pytest.mark.parametrize("name", ["UP", "a.b", "%2e%2e", "x" * 64, "-a", "a%20b", "%00", "a%5cb"])
def test_names_that_are_refused(server: Server, name: str) -> None:
    for method, path in (("PUT", ""), ("GET", ""), ("DELETE", ""), ("POST", "/retrain")):
        call(server, method, f"/classifiers/{name}{path}", EXAMPLES, status=422)
    call(server, "GET", f"/classifiers/{name}/network", status=422)
    call(server, "POST", f"/classifiers/{name}/suggest", {"index": "a"}, status=422)


@pytest.mark.parametrize("name", ["a%2fb", "..%2fup", "%2e%2e%2f%2e%2e%2fetc"])
def test_names_with_slashes_have_no_route(server: Server, name: str) -> None:
    before = call(server, "GET", "/classifiers")
    call(server, "PUT", f"/classifiers/{name}", EXAMPLES, status=404)
    assert call(server, "GET", "/classifiers") == before


def test_bad_requests(server: Server, topics: str) -> None:
    assert "no classifier" in classify(server, 404, inputs="a", classifier="nowhere")["error"]
    classify(server, 422, inputs="a", threshold=2)
    classify(server, 422, inputs="a", explain="yes")
    for number in ("NaN", "Infinity", "-Infinity"):
        answer = httpx.post(
            f"{server.url}/classify",
            content=f'{{"inputs": "a", "threshold": {number}}}',
            headers={"content-type": "application/json"},
        )
        assert answer.status_code == 422
        assert "threshold" in answer.json()["error"]
    classify(server, 422, inputs="a", top_k=0)
    classify(server, 422, inputs="a", classifier="../x")
    classify(server, 400, inputs=" ")
    call(server, "PUT", "/classifiers/second", EXAMPLES)
    assert "second, topics" in classify(server, 422, inputs="a")["error"]
    call(server, "DELETE", "/classifiers/second", status=204)


def test_replicas_share_heads_and_refuse_those_of_another_revision(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    index = ("--index-path", str(tmp_path / "index"))
    other = tmp_path / "other"
    seal_other(other, Path(light[1]))
    with (
        serving(tmp_path / "log", *index, *light) as one,
        serving(tmp_path / "log2", *index, "--bundle", str(other)) as two,
    ):
        call(one, "PUT", "/classifiers/topics", EXAMPLES)
        assert not call(two, "GET", "/classifiers/topics")["current"]
        refused = classify(two, 409, inputs="The goalkeeper saved a penalty.")
        assert "POST /classifiers/topics/retrain" in refused["error"]
        assert call(two, "POST", "/classifiers/topics/retrain")["current"]
        assert classify(two, inputs="The goalkeeper saved a penalty.")[0][0]["label"] == "sport"
        classify(one, 409, inputs="a")
