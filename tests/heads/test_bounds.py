"""The limits of a training, an answer and a list of suggestions, checked before they begin."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from docsplit.heads import examples as bounds
from docsplit.heads.examples import Examples, digest, digests, unpacked
from docsplit.heads.network import Network
from service.index.storage.database import connect
from service.learning import heads as store
from tests.conftest import Server, serving, wait_until
from tests.index.conftest import call

# bytes that a service may use for a small answer
LITTLE = 150_000_000


@pytest.fixture(scope="module")
def settled(server: Server) -> Server:
    """The service when its memory stays the same for a second.

    The first request to classifiers reads LanceDB, and a service that has just started compiles
    its engine of one stream.
    """
    call(server, "GET", "/classifiers")
    readings = deque([0, 1], maxlen=4)

    def steady() -> bool:
        time.sleep(0.3)
        readings.append(server.memory())
        return max(readings) - min(readings) < 1_000_000

    wait_until(steady, 60)
    return server


def refused(server: Server, body: dict[str, Any], status: int = 422) -> str:
    server.forget_peak()
    before = server.memory()
    answer = httpx.put(f"{server.url}/classifiers/bounds", json=body, timeout=60)
    assert answer.status_code == status, answer.text[:500]
    assert server.memory("VmHWM") - before < LITTLE
    assert len(answer.content) < 1000
    return str(answer.json()["error"])


def test_a_training_on_too_many_labels_is_refused_at_once(settled: Server) -> None:
    labels = [f"l{number}" for number in range(100_000)]
    body = {"inputs": ["a", "b", "c", "d"], "multi_label": True}
    sets = [labels[::2], labels[::2], labels[1::2], labels[1::2]]
    said = refused(settled, body | {"labels": sets})
    assert "100000 different labels" in said
    assert f"the limit is {bounds.MOST_LABELS}" in said
    call(settled, "GET", "/classifiers/bounds", status=404)


def test_a_training_that_is_too_large_is_refused_with_its_size(settled: Server) -> None:
    examples, labels = 40_000, 4000
    body = {
        "inputs": ["a"] * examples,
        "labels": [f"l{number % labels}" for number in range(examples)],
    }
    said = refused(settled, body, 413)
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
def test_wrong_items_give_one_error(settled: Server, change: dict[str, Any], named: str) -> None:
    body = {name: value for name, value in change.items() if value is not None}
    assert named in refused(settled, body)


def test_the_largest_training_is_within_its_limit() -> None:
    bounds.check_training(8192, 4096, 384, multi_label=False)
    bounds.check_training(bounds.MOST_EXAMPLES // 2, 20, 384, multi_label=False)
    with pytest.raises(ValueError, match="the limit is 500 MB"):
        bounds.check_training(8192, 4096, 1024, multi_label=False)


def test_the_scores_of_an_answer_are_limited() -> None:
    bounds.check_answer(2048, 50, None)
    bounds.check_answer(2048, 4096, 97)
    for top_k in (None, 98, 10_000):
        with pytest.raises(ValueError, match="set top_k to 97 or less"):
            bounds.check_answer(2048, 4096, top_k)


@pytest.mark.parametrize("multi_label", [False, True])
def test_stored_examples_are_read_unchanged(multi_label: bool) -> None:
    labels = [["a", "b"], []] if multi_label else [["a"], ["\u4e00"]]
    given = Examples(['"quoted"\n', "\u4e00\U0001f600"], labels, multi_label, None)
    assert Examples.from_bytes(given.to_bytes()) == given


def test_examples_of_the_former_format_are_read() -> None:
    former = zlib.compress(json.dumps([["\u4e00", "b"], ["x", "y"], "other"]).encode())
    assert Examples.from_bytes(former) == Examples(
        ["\u4e00", "b"], [["x"], ["y"]], unlabelled="other"
    )
    labelled = zlib.compress(json.dumps([["a", "b"], ["x", "y"], None, None, ["news"]]).encode())
    found = Examples.from_bytes(labelled)
    assert (found.labelled_in, found.replaced) == (["news"], (None,))
    given = replace(found, replaced=[["z"]])
    assert Examples.from_bytes(given.to_bytes()) == given


def test_digests_of_stored_texts_need_no_memory_for_all_texts() -> None:
    texts = [f'{number}: "quoted" \\ \n\u4e00]["' * 3000 for number in range(200)]
    texts[7] *= 40
    given = Examples([*texts, ""], [["a"], ["b"]] + [["a"]] * 199)
    blob = given.to_bytes()
    expected = set(map(digest, given.inputs))
    tracemalloc.start()
    try:
        assert digests(blob) == expected
        streamed = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert set(map(digest, Examples.from_bytes(blob).inputs)) == expected
        assert tracemalloc.get_traced_memory()[1] > 3 * streamed
    finally:
        tracemalloc.stop()


def test_damaged_examples_have_no_digests() -> None:
    blob = Examples(["a", "b"], [["a"], ["b"]]).to_bytes()
    former = zlib.compress(json.dumps([["\u4e00", "b"], ["x", "y"], None]).encode())
    assert digests(former) == {digest("\u4e00"), digest("b")}
    for damaged in (b"", blob[: len(blob) // 2], b"x" + blob, zlib.compress(b'[["a"')):
        with pytest.raises((ValueError, zlib.error)):
            digests(damaged)


@pytest.mark.parametrize("room", [True, False])
async def test_a_process_keeps_only_as_many_heads_as_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    size = 4 * (64 * 64 + 64)
    if not room:
        monkeypatch.setattr(store, "_LOADED_BYTES", int(2.9 * size))

    heads = store.Heads(await connect(str(tmp_path)), "classifiers", "classifier")
    weights, biases = np.ones((64, 64), np.float32), np.zeros(64, np.float32)
    for name in "abc":
        network = Network((weights,), (biases,))
        await heads.put(store.Head(name, name, "r", ["x"], {}, network))
    first = {name: await heads.get(name) for name in "abc"}
    assert await heads.get("b") is first["b"]
    again = await heads.get("a")
    assert (again is first["a"]) == room
    assert again.network.shape == (64, 64)


@pytest.mark.folder
def test_memory_is_reserved_before_stored_examples_are_unpacked(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    # each unpacks to 40 MB, from a body of no byte
    text = "Lorem ipsum dolor sit amet. " * 10_000
    examples = Examples([f"{place} {text}" for place in range(144)], [["a"], ["b"]] * 72)
    blob = examples.to_bytes()
    assert unpacked(blob) == len(zlib.decompress(blob)) > 40_000_000

    async def fill() -> None:
        heads = store.Heads(
            await connect(str(tmp_path / "index" / "heads")), "classifiers", "classifier"
        )
        network = Network((np.ones((2, 2), np.float32),), (np.zeros(2, np.float32),))
        await heads.put(store.Head("big", "u", "r", ["a", "b"], {}, network), examples)

    asyncio.run(fill())
    with serving(tmp_path / "log", *light) as server:
        place = f"{server.url}/classifiers/big/retrain"
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: httpx.post(place, timeout=60), range(6)))
        statuses = [answer.status_code for answer in answers]
        assert statuses.count(202) == 1, statuses
        assert set(statuses) <= {202, 409, 429}
        assert statuses.count(429) >= 2, statuses
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert "leave no memory" in refused.json()["error"]
        assert "retry-after" in refused.headers
        call(server, "DELETE", "/classifiers/big", status=204)
