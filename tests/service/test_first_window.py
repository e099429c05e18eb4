"""A bundle decides how much the first window of a document counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import serving
from tests.index.conftest import call
from tests.light_bundle import seal_light
from windowing.pooling import normalise

TIMES = 3.0


def test_its_tokens_count_as_many_times_as_the_bundle_says(
    tmp_path: Path, peps: dict[str, str]
) -> None:
    text = peps["pep-8"][:6000]
    seal_light(tmp_path / "bundle", first_window=TIMES)
    flags = ("--bundle", str(tmp_path / "bundle"), "--index-path", str(tmp_path / "index"))
    with serving(tmp_path / "log", *flags) as server:
        assert call(server, "GET", "/info")["first_window"] == TIMES
        answer = call(server, "POST", "/embed", {"inputs": text, "windows": True})
        call(server, "PUT", "/indexes/x", {}, status=201)
        body = {"documents": [{"id": "a", "text": text}]}
        call(server, "POST", "/indexes/x/documents", body)
        [hit] = call(server, "POST", "/similar", {"index": "x", "text": text})
    [vector], [windows] = answer["embeddings"], answer["windows"]
    assert len(windows) > 2
    rows = np.array([window["embedding"] for window in windows])
    tokens = np.array([window["tokens"] for window in windows], dtype=np.float64)
    plain = normalise(tokens @ rows)
    tokens[0] *= TIMES
    assert vector == pytest.approx(normalise(tokens @ rows), abs=1e-6)
    assert np.abs(vector - plain).max() > 0.01
    # the stored vector is the same
    assert hit["cosine"] == pytest.approx(1, abs=1e-5)
    assert plain @ vector < 0.999
