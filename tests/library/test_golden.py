"""What version 0.1 computed and stored: its vectors, and an index and a classifier of its store."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from docsplit import Encoder
from tests.conftest import ROOT, serving

GOLDEN = Path(__file__).parent / "golden"


def test_vectors_are_those_of_the_former_version() -> None:
    with gzip.open(ROOT / "examples/peps/documents.jsonl.gz", "rt") as lines:
        rows = [json.loads(next(lines))["text"] for _ in range(50)]
    texts = [text[: 5000 if number % 10 else 200] for number, text in enumerate(rows)]
    former = np.load(GOLDEN / "vectors.npy").astype(np.float32)
    cosines = Encoder(precision="f32").embed(texts) @ former.T
    assert cosines.diagonal().min() > 0.9999
    np.fill_diagonal(cosines, 0)
    assert cosines.max() < 0.999


def test_a_store_of_the_former_version_gives_its_answers(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "store-0.1.tar.gz") as archive:
        archive.extractall(tmp_path / "store", filter="data")
    former = json.loads((GOLDEN / "answers.json").read_text())
    search: dict[str, Any] = {
        "index": "peps",
        "text": "dictionaries whose keys have types",
        "top_k": 3,
    }
    sorted_text = "The beta phase starts in May; the final release follows in October."
    flags = ("--index-path", str(tmp_path / "store"), "--precision", "f32")
    with (
        serving(tmp_path / "log", *flags) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):
        for name, more in (("similar", {}), ("hybrid", {"mode": "hybrid"})):
            hits = http.post("/similar", json=search | more).json()
            assert [hit["id"] for hit in hits] == [hit["id"] for hit in former[name]]
            for hit, stored in zip(hits, former[name], strict=True):
                assert hit["score"] == pytest.approx(stored["score"], abs=1e-3)
                assert hit["metadata"] == stored["metadata"]
        [labels] = http.post("/classify", json={"inputs": sorted_text}).json()
        [expected] = former["classify"]
        assert [one["label"] for one in labels] == [one["label"] for one in expected]
        assert labels[0]["score"] == pytest.approx(expected[0]["score"], abs=1e-3)
