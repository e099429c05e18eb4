"""Which windows carried a decision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.documents.pooling import normalise, pool
from service.heads.explain import without
from tests.conftest import Server
from tests.heads.conftest import PACKAGING, TRAINED
from tests.heads.test_classify import classify
from tests.index.conftest import call


def test_without_a_window_the_rest_is_pooled_as_ever() -> None:
    draw = np.random.default_rng(0)
    windows = normalise(draw.standard_normal((5, 16)).astype(np.float32))
    tokens = np.array([100, 7, 300, 250, 41])
    left = without(windows, tokens.astype(np.float64))
    for each in range(5):
        rest = np.arange(5) != each
        expected = normalise(pool(windows[rest], tokens[rest]))
        assert left[each] == pytest.approx(expected, abs=1e-6)
    assert not np.allclose(left[0], left[1])


def test_the_decisive_paragraph_is_named(
    server: Server, subjects: str, proposals: list[dict[str, Any]], peps: dict[str, str]
) -> None:
    # neither subject: on the length of lines, on names, on the language's releases
    others = [peps[name][:4000] for name in ("pep-8", "pep-257", "pep-572", "pep-20")]
    typing = proposals[len(PACKAGING) + TRAINED]["text"][:4000]
    packaging = proposals[TRAINED]["text"][:4000]
    emoji = "\N{GRINNING FACE}" * 5
    for told, label in ((typing, "typing"), (packaging, "packaging")):
        for place in (0, 2, 4):
            parts = [f"{emoji} {part}" for part in [*others[:place], told, *others[place:]]]
            text = "\n\n".join(parts)
            start = text.index(told[:200])
            asked = {"inputs": [text], "classifier": subjects, "explain": True}
            [answer] = classify(server, **asked)
            if answer["labels"][0]["label"] != label:
                continue
            windows = answer["windows"]
            assert 1 <= len(windows) <= 3
            best = windows[0]
            assert start - 1500 < best["start"] < best["end"] <= start + 4000 + 1500
            assert best["contribution"] > 0
            falling = [window["contribution"] for window in windows]
            assert falling == sorted(falling, reverse=True)
            break
        else:
            pytest.fail(f"no text with a part on {label} was taken for it")


def test_offsets_and_occlusion_are_true(
    server: Server, subjects: str, proposals: list[dict[str, Any]]
) -> None:
    text = "\N{GRINNING FACE}" * 30 + " " + proposals[-1]["text"]
    asked = {"inputs": [text, text[:400]], "classifier": subjects}
    plain = classify(server, **asked)
    long, short = classify(server, **asked, explain=True)
    assert [long["labels"], short["labels"]] == plain
    body = {"inputs": text, "windows": True}
    windows = call(server, "POST", "/embed", body)["windows"][0]
    spans = [(window["start"], window["end"]) for window in windows]
    assert spans[-1][1] == len(text)
    assert {(w["start"], w["end"]) for w in long["windows"]} <= set(spans)
    assert len(spans) > 3 >= len(long["windows"])
    # one window: against the share among the examples
    [only] = short["windows"]
    assert (only["start"], only["end"]) == (0, 400)
    assert only["contribution"] == pytest.approx(short["labels"][0]["score"] - 0.5)
    [unsure] = classify(
        server, inputs=text, classifier=subjects, explain=True, threshold=1.0, top_k=1
    )
    assert [p["label"] for p in unsure["labels"]] == ["unsure"]
    assert unsure["windows"] == long["windows"]
