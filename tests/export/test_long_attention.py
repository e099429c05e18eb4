"""Sliding-window attention: vectors of the source, the graph and the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from transformers import AutoTokenizer, BertModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from docsplit.bundles.format import Bundle, load
from export.__main__ import main
from export.attention import LONG_MODEL_TYPE
from export.engines import source_engine
from export.graph import INPUTS, OUTPUT, write_graph
from export.source import Source, open_source, reference_vectors
from tests.conftest import serving
from training.encoder import Encoder, extend
from training.trainer.output import save_model

pytestmark = pytest.mark.usefixtures("neighbours_of_random_encoders")
WINDOW = 10
MAX_TOKENS = 640


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, shallow_folder: Path) -> Path:
    """A checkpoint that ``docsplit-train`` extended."""
    folder = tmp_path_factory.mktemp("long") / "tiny-long"
    long = extend(BertModel.from_pretrained(shallow_folder), MAX_TOKENS, window=WINDOW)
    tokenizer = AutoTokenizer.from_pretrained(shallow_folder)
    save_model(Encoder(long, "mean"), tokenizer, MAX_TOKENS, folder)
    return folder


@pytest.fixture(scope="module")
def source(folder: Path) -> Source:
    return open_source(str(folder), trust_remote_code=True)


@pytest.fixture(scope="module")
def graph(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "model.onnx"
    write_graph(source, path)
    return path


def inputs(tokens: int, lengths: list[int]) -> dict[str, NDArray[np.int64]]:
    ids = np.random.default_rng(tokens).integers(5, 500, (len(lengths), tokens))
    mask = (np.arange(tokens) < np.array(lengths)[:, None]).astype(np.int64)
    return dict(zip(INPUTS, (ids * mask, mask), strict=True))


def computed(graph: Path, given: dict[str, NDArray[np.int64]]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    found: NDArray[np.float32] = session.run([OUTPUT], given)[0]
    return found


# up to 11 tokens all see each other, 12 do not; blocks have 5 tokens
@pytest.mark.parametrize("tokens", [1, 2, 11, 12, 15, 16, 61, 640])
def test_the_graph_returns_the_vectors_of_the_training(
    source: Source, graph: Path, tokens: int
) -> None:
    for lengths in ([tokens], [tokens, max(1, tokens // 2), 1]):
        given = inputs(tokens, lengths)
        np.testing.assert_allclose(computed(graph, given), source_engine(source)(given), atol=2e-6)


def test_another_window_gives_other_vectors(source: Source, tmp_path: Path) -> None:
    checkpoint: Any = source.model[0].auto_model
    other = open_source(checkpoint.name_or_path, trust_remote_code=True)
    other.encoder.config.attention_window = 2 * WINDOW
    graph = tmp_path / "model.onnx"
    write_graph(other, graph)
    near, far = inputs(WINDOW + 1, [WINDOW + 1]), inputs(200, [200])
    np.testing.assert_allclose(computed(graph, near), source_engine(source)(near), atol=2e-6)
    assert np.abs(computed(graph, far) - source_engine(source)(far)).max() > 1e-4


def test_tracing_does_not_change_the_source(source: Source, graph: Path) -> None:
    encoder: Any = source.encoder
    kinds = {type(layer.attention.self).__name__ for layer in encoder.encoder.layer}
    assert kinds == {"_SelfAttention"}


def test_the_graph_has_only_standard_operators(graph: Path) -> None:
    model = onnx.load(graph)
    assert {entry.domain for entry in model.opset_import} <= {"", "ai.onnx"}
    assert sum(node.op_type == "If" for node in model.graph.node) == 1


@pytest.fixture(scope="module")
def bundle(folder: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    dest = tmp_path_factory.mktemp("bundles") / "long"
    order = [str(folder), str(dest), "--licence", "Apache-2.0", "--calibration", str(text_file)]
    order += ["--paragraphs", "200", "--trust-remote-code"]
    assert main(order) == 0
    return load(dest)


def test_it_passes_the_gate(bundle: Bundle) -> None:
    made = bundle.manifest
    assert list(made.precisions) == ["fp16"]
    assert made.max_tokens == MAX_TOKENS
    assert made.precisions["fp16"].kernels["SkipLayerNormalization"] == 2
    assert made.precisions["fp16"].parity.cosine_min > 0.9999
    assert made.precisions["fp16"].ranges is not None
    # nodes of an inlined operator have no names
    assert made.precisions["fp16"].ranges.largest_at


def test_int8_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = [str(folder), str(tmp_path / "b"), "--licence", "x", "--trust-remote-code"]
    assert main([*order, "--precision", "fp16", "int8"]) == 1
    assert "omit --precision" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_model_code_runs_only_if_allowed(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the training has registered its class with transformers, unlike a process that exports
    monkeypatch.delitem(CONFIG_MAPPING._extra_content, LONG_MODEL_TYPE)
    assert main([str(folder), str(tmp_path / "b"), "--licence", "x"]) == 1
    assert "--trust-remote-code" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_it_is_served_in_one_window(
    bundle: Bundle, source: Source, pep_texts: list[str], tmp_path: Path
) -> None:
    text = " ".join(pep_texts[0].split()[:150])
    with serving(tmp_path / "log", "--bundle", str(bundle.root)) as server:
        answer = httpx.post(
            f"{server.url}/embed", json={"inputs": text, "windows": True}, timeout=60
        )
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert len(said["windows"][0]) == 1
    assert said["windows"][0][0]["tokens"] > 96  # more than the short checkpoint reads
    served = np.array(said["embeddings"][0])
    assert served @ reference_vectors(source, [text])[0].numpy() > 0.999
