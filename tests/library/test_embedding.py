"""``docsplit embed``: a file of texts becomes a file of vectors, also after an interruption."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from docsplit import EmptyTextError, Encoder, embedding
from tests.conftest import Server, serving
from tests.light_bundle import seal_light

NDJSON = "application/x-ndjson"
TEXTS = ["A cat sat.", "", "Taxes are due in May.", "A kitten plays.", "The tax office writes."]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "texts.jsonl"
    lines = [json.dumps({"id": f"t{n}", "text": text}) for n, text in enumerate(TEXTS)]
    file.write_text("\n".join(lines))
    return file


def embed(source: Path, target: Path, light: tuple[str, ...], *flags: str) -> int:
    return embedding.main(["embed", str(source), str(target), *light, "--threads", "1", *flags])


def test_the_vectors_are_those_of_the_service(
    light_server: Server, light: tuple[str, ...], source: Path, tmp_path: Path
) -> None:
    table = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"name": ["a", "b"], "body": [TEXTS[0], TEXTS[2]]}), table)
    target = tmp_path / "out.parquet"
    fields = ("--id-field", "name", "--text-field", "body")
    assert embed(table, target, light, *fields) == 0
    found = pq.read_table(target)
    assert found["id"].to_pylist() == ["a", "b"]
    body = {"inputs": [TEXTS[0], TEXTS[2]]}
    expected = httpx.post(f"{light_server.url}/embed", json=body, timeout=60).json()
    made = np.array(found["vector"].to_pylist())
    assert np.allclose(made, expected, atol=1e-3)
    assert not np.allclose(made, expected[::-1], atol=1e-3)
    assert embed(source, tmp_path / "out.jsonl", light, "--dimensions", "8") == 1
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"t{n}" for n in range(5)]
    assert [row["error"] is None for row in rows] == [bool(text) for text in TEXTS]
    assert [row["vector"] and len(row["vector"]) for row in rows] == [8, None, 8, 8, 8]
    assert not [*tmp_path.glob("*.parts")]


def test_an_interrupted_run_goes_on(
    light: tuple[str, ...],
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(embedding, "PART_TEXTS", 2)
    assert embed(source, tmp_path / "whole.parquet", light) == 1
    embedded: list[str] = []
    whole = Encoder.documents
    stop = 1

    def counted(encoder: Encoder, texts: Sequence[str], **how: Any) -> Any:
        if len(embedded) == stop:
            raise KeyboardInterrupt
        embedded.extend(texts)
        return whole(encoder, texts, **how)

    monkeypatch.setattr(Encoder, "documents", counted)
    target = tmp_path / "out.parquet"
    assert embed(source, target, light) == 130
    assert "repeat it to continue" in capsys.readouterr().err
    assert not target.exists()
    # other vectors, or other texts, do not continue it
    assert embed(source, target, light, "--dimensions", "8") == 2
    assert "other flags" in capsys.readouterr().err
    changed = tmp_path / "changed.jsonl"
    for former, other in (("t1", "t9"), ("A cat sat.", "A cat ran.")):
        changed.write_text(source.read_text().replace(former, other))
        assert embed(changed, target, light) == 2
        assert "IN changed" in capsys.readouterr().err
    stop = 100
    assert embed(source, target, light) == 1
    assert embedded == [text for text in TEXTS if text]
    assert pq.read_table(target).equals(pq.read_table(tmp_path / "whole.parquet"))


def test_a_text_of_unknown_words_has_no_vector(tmp_path: Path) -> None:
    # the unknown token and those around a text add nothing, as in static embeddings
    seal_light(tmp_path / "bundle", zeros=[100, 101, 102])
    light = ("--bundle", str(tmp_path / "bundle"))
    texts = ["A cat sat.", "\U00013000 \U00013001", "A \U00013000 cat."]
    source = tmp_path / "texts.jsonl"
    documents = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    source.write_text("\n".join(map(json.dumps, documents)))
    reason = "has a vector of zeros: the model knows none of its words"
    with pytest.raises(EmptyTextError, match=f"text 1 {reason}"):
        Encoder(tmp_path / "bundle").embed(texts)
    assert embed(source, tmp_path / "out.jsonl", light) == 1
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["error"] for row in rows] == [None, f"the text {reason}", None]
    assert [row["vector"] is None for row in rows] == [False, True, False]
    with (
        serving(tmp_path / "log", *light) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        answer = client.post("/embed", json={"inputs": texts})
        assert (answer.status_code, answer.json()["error"]) == (400, f"input 1 {reason}")
        assert client.post("/embed", json={"inputs": texts[::2]}).status_code == 200
        lines = client.post("/embed", json={"inputs": texts}, headers={"accept": NDJSON})
        found = [json.loads(line).get("status") for line in lines.text.splitlines()]
        assert found[:3] == [None, 400, None]
        client.put("/indexes/zeros", json={})
        answer = client.post("/indexes/zeros/documents", json={"documents": documents})
        assert (answer.status_code, answer.json()["error"]) == (400, f"documents.1.text {reason}")
        assert client.get("/indexes/zeros").json()["documents"] == 0


@pytest.mark.parametrize(
    ("name", "flags", "reason"),
    [
        ("out.csv", (), "ends in .parquet or .jsonl"),
        ("texts.jsonl", (), "exists"),
        ("out.jsonl", ("--dimensions", "9999"), "this model has"),
        ("out.jsonl", ("--prompt-name", "none"), "no such prompt"),
        ("out.jsonl", ("--text-field", "body"), "body"),
        ("out.jsonl", ("--bundle", "missing"), "missing"),
    ],
)
def test_refusals_say_what_to_do(
    light: tuple[str, ...],
    source: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    flags: tuple[str, ...],
    reason: str,
) -> None:
    assert embed(source, source.with_name(name), light, *flags) == 2
    assert reason in capsys.readouterr().err.replace("\n", " ")
