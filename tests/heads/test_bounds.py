"""What a training, an answer and a list of suggestions may take, known before they begin."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from heads import bounds
from heads.examples import Examples
from tests.conftest import Server
from tests.index.conftest import call

# of a service that answers something small
LITTLE = 150_000_000


def refused(server: Server, body: dict[str, Any], status: int = 422) -> str:
    # the first request to classifiers imports LanceDB, which takes memory of its own
    call(server, "GET", "/classifiers")
    server.forget_peak()
    before = server.memory()
    answer = httpx.put(f"{server.url}/classifiers/bounds", json=body, timeout=60)
    assert answer.status_code == status, answer.text[:500]
    assert server.memory("VmHWM") - before < LITTLE
    assert len(answer.content) < 1000
    return str(answer.json()["error"])


def test_a_training_on_too_many_labels_is_refused_at_once(server: Server) -> None:
    labels = [f"l{number}" for number in range(100_000)]
    body = {"inputs": ["a", "b", "c", "d"], "multi_label": True}
    sets = [labels[::2], labels[::2], labels[1::2], labels[1::2]]
    said = refused(server, body | {"labels": sets})
    assert "100000 different labels" in said
    assert f"the limit is {bounds.MOST_LABELS}" in said
    call(server, "GET", "/classifiers/bounds", status=404)


def test_a_training_that_takes_too_much_is_refused_with_its_size(server: Server) -> None:
    examples, labels = 40_000, 4000
    body = {
        "inputs": ["a"] * examples,
        "labels": [f"l{number % labels}" for number in range(examples)],
    }
    said = refused(server, body, 413)
    assert f"{examples} examples x {labels} labels" in said
    assert "MB" in said
    assert "fewer" in said


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"inputs": [0] * 120_000, "labels": ["a"]}, "examples, the limit is"),
        ({"inputs": [0] * 90_000, "labels": ["a"]}, "item 0"),
        ({"inputs": ["a"], "labels": [0] * 90_000}, "item 0"),
        ({"inputs": ["a"], "labels": ["a"] * 120_000}, "examples, the limit is"),
        ({"inputs": None, "index": "x", "ids": [0] * 90_000, "labels": ["a"]}, "item 0"),
        ({"inputs": None, "index": "x", "ids": ["\x00"], "labels": ["a"]}, "item 0"),
    ],
)
def test_wrong_items_give_one_error(server: Server, change: dict[str, Any], named: str) -> None:
    body = {name: value for name, value in change.items() if value is not None}
    assert named in refused(server, body)


def test_the_largest_training_is_within_its_bound() -> None:
    bounds.check_training(8192, 4096, 384, multi_label=False)
    bounds.check_training(bounds.MOST_EXAMPLES // 2, 20, 384, multi_label=False)
    with pytest.raises(ValueError, match="the limit is 500 MB"):
        bounds.check_training(8192, 4096, 1024, multi_label=False)


def test_an_answer_is_bounded_by_its_scores() -> None:
    bounds.check_answer(2048, 50, None)
    bounds.check_answer(2048, 4096, 97)
    for top_k in (None, 98, 10_000):
        with pytest.raises(ValueError, match="set top_k to 97 or less"):
            bounds.check_answer(2048, 4096, top_k)


@pytest.mark.parametrize("multi_label", [False, True])
def test_stored_examples_are_read_as_they_were_written(multi_label: bool) -> None:
    labels = [["a", "b"], []] if multi_label else [["a"], ["\u4e00"]]
    given = Examples(['"quoted"\n', "\u4e00\U0001f600"], labels, multi_label, None)
    assert Examples.from_bytes(given.to_bytes()) == given


def test_examples_of_the_former_format_are_read() -> None:
    import json
    import zlib

    former = zlib.compress(json.dumps([["\u4e00", "b"], ["x", "y"], "other"]).encode())
    assert Examples.from_bytes(former) == Examples(
        ["\u4e00", "b"], [["x"], ["y"]], unlabelled="other"
    )
