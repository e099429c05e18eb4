"""Labels that people give to documents one after the other, and the trainings that learn them."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from docsplit.heads.examples import Examples
from docsplit.heads.network import Network
from export.heads import add_head
from service.errors import InvalidError
from service.learning.examples import gather
from tests.conftest import Server, serving, wait_until
from tests.heads.conftest import PACKAGING, TYPING
from tests.index.conftest import call, upsert
from tests.integrity.stores import open_indexes


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """Its vectors hold the words, which tell both subjects apart."""
    return light_server


@pytest.fixture
def name(server: Server) -> Iterator[str]:
    """The name of a classifier that does not exist yet."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    yield name
    httpx.delete(f"{server.url}/classifiers/{name}")


def give(
    server: Server, name: str, index: str, labels: Mapping[str, Any], status: int = 200
) -> Any:
    """Label documents by id; None removes a label."""
    documents = [
        {"id": key, "labels": [one] if isinstance(one, str) else one} for key, one in labels.items()
    ]
    body = {"index": index, "documents": documents}
    return call(server, "POST", f"/classifiers/{name}/labels", body, status=status)


def given(server: Server, name: str, **query: Any) -> list[tuple[str, list[str]]]:
    """Ids and labels, page by page."""
    found: list[tuple[str, list[str]]] = []
    after: str | None = ""
    while after is not None:
        page = call(server, "GET", f"/classifiers/{name}/labels", params={"after": after, **query})
        found += [(one["id"], one["labels"]) for one in page["documents"]]
        after = page["next"]
    return found


def learn(server: Server, name: str, query: str = "") -> dict[str, Any]:
    """The classifier after a training from its labels."""
    place = f"{server.url}/classifiers/{name}/retrain{query}"
    # a training is over for GET some milliseconds before the next one may begin
    wait_until(lambda: httpx.post(place, timeout=60).status_code == 202, 60)
    while "training" in (found := call(server, "GET", f"/classifiers/{name}")):
        assert found["training"]["state"] == "running", found
        time.sleep(0.05)
    return dict(found)


def suggested(server: Server, name: str, index: str) -> set[str]:
    body = {"index": index, "count": 200}
    return {one["id"] for one in call(server, "POST", f"/classifiers/{name}/suggest", body)}


def some(numbers: list[int], label: str) -> dict[str, str]:
    return {f"pep-{number}": label for number in numbers}


def test_labels_are_kept_in_the_order_of_time(server: Server, library: str, name: str) -> None:
    give(
        server, name, library, {"pep-484": "typing", "pep-241": "packaging", "pep-544": "packaging"}
    )
    # a new label moves a document to the end; null removes a label
    assert give(server, name, library, {"pep-484": "other", "pep-241": None}) == {"labelled": 2}
    assert given(server, name) == [("pep-544", ["packaging"]), ("pep-484", ["other"])]
    assert given(server, name, limit=1, index=library) == given(server, name)
    listed = call(server, "GET", "/classifiers")
    assert name in listed["untrained"]
    assert name not in listed["classifiers"]
    call(server, "DELETE", f"/classifiers/{name}", status=204)
    assert given(server, name) == []
    call(server, "DELETE", f"/classifiers/{name}", status=404)


def test_a_classifier_learns_the_labels_and_keeps_its_examples(
    server: Server, library: str, name: str
) -> None:
    examples = {"inputs": ["cats and dogs", "dogs and cats"] * 2, "labels": ["pets"] * 4}
    give(server, name, library, some(TYPING[:4], "typing"))
    answer = call(server, "POST", f"/classifiers/{name}/retrain", status=422)
    assert "only one label" in answer["error"]
    give(server, name, library, some(PACKAGING[:4], "packaging"))
    first = learn(server, name)
    assert first["labels"] == {"packaging": 4, "typing": 4}
    assert first["history"] == []
    before = suggested(server, name, library)
    assert {"pep-589", "pep-695"} <= before
    # one document gets another label, and a further one its first
    give(server, name, library, {"pep-484": "packaging", "pep-589": "typing"})
    assert suggested(server, name, library) == before - {"pep-589"}
    second = learn(server, name)
    assert second["labels"] == {"packaging": 5, "typing": 4}
    [former] = second["history"]
    assert (former["examples"], former["accuracy"]) == (8, first["accuracy"])
    # the examples of a PUT stay beside the labels
    examples["inputs"] += ["sums", "products"]
    examples["labels"] += ["numbers"] * 2
    place = f"{server.url}/classifiers/{name}"
    wait_until(lambda: httpx.put(place, json=examples, timeout=60).status_code == 200, 60)
    third = learn(server, name)
    assert third["labels"] == {"numbers": 2, "packaging": 5, "pets": 2, "typing": 4}
    assert [one["examples"] for one in third["history"]] == [8, 9, 6]


@pytest.mark.parametrize(
    ("labels", "hint"),
    [
        ({"pep-241": ["a", "a"]}, "a label occurs twice"),
        ({"pep-241": ["unsure"]}, "threshold"),
        ({"pep-241": [""]}, "1 to 128"),
        ({"pep-241": "a", "none": "a"}, "the first at position 1"),
    ],
)
def test_unusable_labels_are_refused_as_a_whole(
    server: Server, library: str, name: str, labels: dict[str, Any], hint: str
) -> None:
    assert hint in give(server, name, library, labels, status=422)["error"]
    assert given(server, name) == []


def test_a_classifier_of_one_label_takes_no_other(
    server: Server, library: str, subjects: str
) -> None:
    answer = give(server, subjects, library, {"pep-241": ["typing", "packaging"]}, status=422)
    assert "documents.0.labels" in answer["error"]


def test_the_first_training_decides_whether_a_document_may_have_several_labels(
    server: Server, library: str, name: str
) -> None:
    labels = some(TYPING[:3], "typing") | some(PACKAGING[:3], "packaging")
    give(server, name, library, labels)
    first = learn(server, name, "?multi_label=true")
    assert (first["multi_label"], "subset_accuracy" in first) == (True, True)
    give(server, name, library, {"pep-241": ["typing", "packaging"], "pep-484": []})
    second = learn(server, name)
    assert (second["multi_label"], second["examples"]) == (
        True,
        len({*labels, "pep-241", "pep-484"}),
    )
    place = f"/classifiers/{name}/retrain?multi_label=false"
    # see ``learn``
    wait_until(lambda: httpx.post(f"{server.url}{place}", timeout=60).status_code != 409, 60)
    refused = call(server, "POST", place, status=422)["error"]
    assert "leave multi_label out" in refused
    # without examples, labels of the other kind are refused, too
    call(server, "DELETE", f"/classifiers/{name}", status=204)
    give(server, name, library, {**labels, "pep-241": ["typing", "packaging"]})
    assert "gives each" in call(server, "POST", place, status=422)["error"]


def test_a_training_forgets_labels_and_documents_that_are_gone(
    server: Server, name: str, proposals: list[dict[str, Any]]
) -> None:
    index = f"{name}-i"
    call(server, "PUT", f"/indexes/{index}", {}, status=201)
    documents = [
        {"id": one["id"], "text": one["text"][:300]} for one in proposals[:5] + proposals[-5:]
    ]
    call(server, "POST", f"/indexes/{index}/documents", {"documents": documents})
    labels = {one["id"]: "a" if place < 5 else "b" for place, one in enumerate(documents)}
    give(server, name, index, labels)
    assert learn(server, name)["labels"] == {"a": 5, "b": 5}
    removed, deleted, edited = (one["id"] for one in documents[:3])
    give(server, name, index, {removed: None})
    call(server, "DELETE", f"/indexes/{index}/documents/{deleted}", status=204)
    changed = [{"id": edited, "text": "Another text."}]
    call(server, "POST", f"/indexes/{index}/documents", {"documents": changed})
    assert learn(server, name)["labels"] == {"a": 3, "b": 5}
    assert removed in suggested(server, name, index)
    # without an index its stored texts are all that is left
    call(server, "DELETE", f"/indexes/{index}", status=204)
    assert learn(server, name)["labels"] == {"a": 3, "b": 5}
    # its labels can still be removed, and no others can be given
    removed, *others = (key for key, _ in given(server, name, index=index))
    assert give(server, name, index, {removed: None}) == {"labelled": len(others)}
    give(server, name, index, {others[0]: "a"}, status=404)
    give(server, name, index, {others[0]: "a", others[1]: None}, status=404)
    assert give(server, name, index, dict.fromkeys(others)) == {"labelled": 0}
    give(server, name, index, {removed: None}, status=404)


def test_an_example_counts_again_once_its_label_is_removed(
    server: Server, name: str, proposals: list[dict[str, Any]]
) -> None:
    index, place = f"{name}-i", f"/classifiers/{name}"
    documents = [
        {"id": one["id"], "text": one["text"][:300]} for one in proposals[:3] + proposals[-3:]
    ]
    ids = [one["id"] for one in documents]
    texts = [one["text"] for one in documents]
    call(server, "PUT", f"/indexes/{index}", {}, status=201)
    call(server, "POST", f"/indexes/{index}/documents", {"documents": documents})
    body = {"inputs": texts[:2] + texts[-2:], "labels": ["a", "a", "b", "b"]}
    call(server, "PUT", place, body)
    # slips: two examples of the PUT, and two other documents
    give(server, name, index, {ids[0]: "b", ids[5]: "c", ids[2]: "a", ids[3]: "c"})
    assert learn(server, name)["labels"] == {"a": 2, "b": 2, "c": 2}
    give(server, name, index, {ids[5]: "b", ids[3]: None})
    assert learn(server, name)["labels"] == {"a": 2, "b": 3}
    give(server, name, index, {ids[0]: None, ids[2]: None})
    assert learn(server, name)["labels"] == {"a": 2, "b": 2}
    give(server, name, index, {ids[5]: None})
    # no label is left: the examples of the PUT are those of the training
    wait_until(
        lambda: httpx.post(f"{server.url}{place}/retrain", timeout=60).status_code == 200, 60
    )
    assert call(server, "GET", place)["labels"] == {"a": 2, "b": 2}
    call(server, "DELETE", f"/indexes/{index}", status=204)


def test_labels_by_an_alias_follow_it(
    server: Server, name: str, proposals: list[dict[str, Any]]
) -> None:
    alias, old, new = f"{name}-a", f"{name}-1", f"{name}-2"
    documents = [{"id": one["id"], "text": one["text"][:300]} for one in proposals[-6:]]
    for index in (old, new):
        call(server, "PUT", f"/indexes/{index}", {}, status=201)
        call(server, "POST", f"/indexes/{index}/documents", {"documents": documents})
    call(server, "PUT", f"/aliases/{alias}", {"index": old}, status=201)
    labels = {one["id"]: "a" if place < 3 else "b" for place, one in enumerate(documents)}
    give(server, name, alias, labels)
    # another name of the same index replaces the labels
    assert give(server, name, old, {documents[0]["id"]: "b"}) == {"labelled": 6}
    assert give(server, name, alias, {documents[0]["id"]: "b"}) == {"labelled": 6}
    assert len(given(server, name, index=old)) == 6
    call(server, "PUT", f"/aliases/{alias}", {"index": new})
    call(server, "DELETE", f"/indexes/{old}", status=204)
    assert len(given(server, name, index=new)) == len(given(server, name)) == 6
    assert learn(server, name)["labels"] == {"a": 2, "b": 4}
    assert not suggested(server, name, new) & labels.keys()
    httpx.delete(f"{server.url}/aliases/{alias}")
    httpx.delete(f"{server.url}/indexes/{new}")


def test_a_classifier_of_the_bundle_keeps_labels_when_its_deletion_is_refused(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(light[1], bundle, copy_function=os.link)
    weights, biases = (np.zeros((64, 2), np.float32),), (np.zeros(2, np.float32),)
    network = Network(weights, biases, 1.0)
    add_head(bundle, "topics", network, kind="classifier", labels=["a", "b"], report={})
    place = ("--index-path", str(tmp_path / "index"))
    with serving(tmp_path / "log", *place, *light) as before:
        call(before, "PUT", "/indexes/few", {}, status=201)
        upsert(before, "few", {"id": "one", "text": "The only text."})
        give(before, "topics", "few", {"one": "a"})
    with serving(tmp_path / "log2", *place, "--bundle", str(bundle)) as server:
        call(server, "DELETE", "/classifiers/topics", status=409)
        assert given(server, "topics") == [("one", ["a"])]


def test_a_retraining_takes_as_many_examples_as_a_training(tmp_path: Path) -> None:
    """Stored examples and labels that people gave count together."""

    async def run(number: int) -> int:
        indexes = await open_indexes(tmp_path)
        labels = [["ab"[place % 2]] for place in range(number)]
        stored = Examples([f"text {place}" for place in range(number)], labels)
        return len((await gather(indexes, stored, []))[0].inputs)

    assert asyncio.run(run(100_000)) == 100_000
    with pytest.raises(InvalidError, match=r"there are 100001 examples.*the limit is 100000"):
        asyncio.run(run(100_001))
