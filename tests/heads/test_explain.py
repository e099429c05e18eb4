"""The windows that decide a label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from docsplit.windowing.pooling import normalise, pool
from service.server.routes.classify import without
from tests.conftest import Server
from tests.heads.test_classify import classify
from tests.index.conftest import call


def test_without_a_window_the_rest_is_pooled_as_before() -> None:
    draw = np.random.default_rng(0)
    windows = normalise(draw.standard_normal((5, 16)).astype(np.float32))
    tokens = np.array([100.0, 7.0, 300.0, 250.0, 41.0])
    left = without(windows, tokens)
    for each in range(5):
        rest = np.arange(5) != each
        expected = normalise(pool(windows[rest], tokens[rest]))
        assert left[each] == pytest.approx(expected, abs=1e-6)
    assert not np.allclose(left[0], left[1])


@pytest.mark.parametrize(
    ("name", "label", "places"), [("pep-438", "packaging", (0, 2)), ("pep-613", "typing", (1, 3))]
)
def test_the_decisive_part_is_found_at_any_position(
    server: Server,
    subjects: str,
    peps: dict[str, str],
    name: str,
    label: str,
    places: tuple[int, ...],
) -> None:
    decisive = peps[name][:3000]
    # on conventions and on governance; the classifier is unsure about them
    others = [peps[name][:3000] for name in ("pep-257", "pep-1", "pep-13")]
    emoji = "\N{GRINNING FACE}" * 5
    texts = [
        "\n\n".join(f"{emoji} {part}" for part in [*others[:place], decisive, *others[place:]])
        for place in places
    ]
    without = classify(server, inputs=others, classifier=subjects)
    answers = classify(server, inputs=texts, classifier=subjects, explain=True)
    for text, answer in zip(texts, answers, strict=True):
        best = answer["labels"][0]
        assert best["label"] == label
        assert all(p["score"] < best["score"] for a in without for p in a if p["label"] == label)
        windows = answer["windows"]
        assert 1 <= len(windows) <= 3
        falling = [window["contribution"] for window in windows]
        assert falling == sorted(falling, reverse=True)
        assert 0 < falling[-1] < falling[0] < 1
        start = text.index(decisive)
        middle = (windows[0]["start"] + windows[0]["end"]) / 2
        assert start < middle < start + len(decisive)


def test_offsets_and_occlusion_are_correct(
    server: Server, subjects: str, proposals: list[dict[str, Any]]
) -> None:
    text = "\N{GRINNING FACE}" * 30 + " " + "".join(one["text"] for one in proposals[-4:])
    asked: dict[str, Any] = {"inputs": [text, text[:400]], "classifier": subjects}
    plain = classify(server, **asked)
    long, short = classify(server, **asked, explain=True)
    assert [long["labels"], short["labels"]] == plain
    body = {"inputs": text, "windows": True}
    windows = call(server, "POST", "/embed", body)["windows"][0]
    spans = [(window["start"], window["end"]) for window in windows]
    assert spans[-1][1] == len(text)
    assert {(w["start"], w["end"]) for w in long["windows"]} <= set(spans)
    assert len(spans) > 3 >= len(long["windows"])
    # one window: compared with the share among the examples
    [only] = short["windows"]
    assert (only["start"], only["end"]) == (0, 400)
    assert only["contribution"] == pytest.approx(short["labels"][0]["score"] - 0.5)
    [unsure] = classify(
        server, inputs=text, classifier=subjects, explain=True, threshold=1.0, top_k=1
    )
    assert [p["label"] for p in unsure["labels"]] == ["unsure"]
    assert unsure["windows"] == long["windows"]
