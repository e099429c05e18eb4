"""A bundle decides how much each window of a document counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from docsplit.bundles.manifest import WindowWeights
from docsplit.windowing.pooling import normalise
from tests.conftest import serving
from tests.index.conftest import call
from tests.light_bundle import seal_light

TIMES = 3.0


def test_windows_count_as_much_as_the_bundle_says(tmp_path: Path, peps: dict[str, str]) -> None:
    text = peps["pep-8"][:6000]
    weights = WindowWeights(unit="letters", first=TIMES)
    seal_light(tmp_path / "bundle", window_weights=weights)
    flags = ("--bundle", str(tmp_path / "bundle"), "--index-path", str(tmp_path / "index"))
    with serving(tmp_path / "log", *flags) as server:
        assert call(server, "GET", "/info")["window_weights"] == weights.model_dump()
        answer = call(server, "POST", "/embed", {"inputs": text, "windows": True})
        call(server, "PUT", "/indexes/x", {}, status=201)
        body = {"documents": [{"id": "a", "text": text}]}
        call(server, "POST", "/indexes/x/documents", body)
        [hit] = call(server, "POST", "/similar", {"index": "x", "text": text})
    [vector], [windows] = answer["embeddings"], answer["windows"]
    assert len(windows) > 2
    rows = np.array([window["embedding"] for window in windows])
    letters = [sum(x.isalpha() for x in text[w["start"] : w["end"]]) for w in windows]
    counted = np.array([letters[0] * TIMES, *letters[1:]])
    assert [w["weight"] for w in windows] == pytest.approx(counted / counted.sum())
    assert vector == pytest.approx(normalise(counted @ rows), abs=1e-6)
    # the stored vector is the same
    assert hit["cosine"] == pytest.approx(1, abs=1e-5)
    # the control: weights by tokens
    plain = normalise(np.array([window["tokens"] for window in windows]) @ rows)
    assert plain @ vector < 0.999
