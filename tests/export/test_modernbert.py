"""Rotary positions and local attention in a graph for any length and any precision."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers
from tokenizers import Tokenizer

import export.fp16
import export.graph
from export.attention import RotationTables
from export.engines import open_engine
from export.errors import ExportError
from export.fp16 import fuse, write_fp16
from export.graph import write_graph
from export.source import Source, open_source, reference_vectors
from export.texts import batches
from tests.export.checkpoints import MODERN, WINDOW, cosines
from tests.export.half_precision import run_in_fp16


def save(bert: Path, folder: Path, **changes: object) -> Path:
    """A transformers folder with the tokenizer of ``bert``."""
    shutil.copytree(bert, folder)
    rows = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    torch.manual_seed(0)
    config = transformers.ModernBertConfig(**{**MODERN, "vocab_size": rows, **changes})
    transformers.ModernBertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights so large that the attention pattern changes a vector."""
    root = tmp_path_factory.mktemp("modern")
    return save(bert_folder, root / "encoder", initializer_range=0.3)


def test_graphs_agree_with_the_source_beyond_its_local_window(
    folder: Path, sentences: list[str], tmp_path: Path
) -> None:
    sentences = sentences[:32]
    source = open_source(str(folder), max_tokens=WINDOW)
    reference = reference_vectors(source, sentences, batch_size=1).numpy()
    write_graph(source, tmp_path / "fp32.onnx")
    ids = np.arange(5, 5 + WINDOW, dtype=np.int64)[None]
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    write_fp16(fuse(source, tmp_path / "fp32.onnx", [inputs]), tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    for graph, least in (("fp32.onnx", 0.999999), ("model.fp16.onnx", 0.9999)):
        _, engine = open_engine("fp16", tmp_path / graph, threads=1)
        for size in (1, 5, len(sentences)):
            rows = batches(tokenizer, sentences, max_tokens=WINDOW, pad_token_id=0, size=size)
            vectors = np.concatenate([engine(batch) for batch in rows])
            assert cosines(vectors, reference).min() > least
    # The control: a wider window gives other vectors.
    source.encoder.config.local_attention = 4 * WINDOW
    wider = reference_vectors(source, sentences).numpy()
    assert cosines(wider, reference).min() < 0.97


def test_the_window_is_limited_by_the_positions(folder: Path) -> None:
    with pytest.raises(ExportError, match=rf"--max-tokens 97 is outside 8\.\.{WINDOW}"):
        open_source(str(folder), max_tokens=97)


def test_positions_are_read_from_tables(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(str(folder))
    rotary: Any = source.encoder.rotary_emb
    kinds = ["full_attention", "sliding_attention"]
    tables = RotationTables(rotary, kinds, WINDOW)
    positions = torch.arange(WINDOW).unsqueeze(0)
    for kind in kinds:
        for table, computed in zip(
            tables(torch.zeros(1), positions, kind),
            rotary(torch.zeros(1), positions, kind),
            strict=True,
        ):
            assert torch.equal(table, computed)
    write_graph(source, tmp_path / "tables.onnx")
    assert source.encoder.rotary_emb is rotary
    # The control: without tables, the graph computes angles in its own precision.
    monkeypatch.setattr(export.graph, "tabled_rotations", lambda *_: torch.no_grad())
    write_graph(source, tmp_path / "angles.onnx")
    found = {
        name: {n.op_type for n in onnx.load(str(tmp_path / f"{name}.onnx")).graph.node}
        for name in ("tables", "angles")
    }
    assert not found["tables"] & {"Cos", "Sin"}
    assert found["angles"] >= {"Cos", "Sin"}


def test_a_scaling_that_changes_with_the_length_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "dynamic")
    config = transformers.AutoConfig.from_pretrained(copy)
    config.rope_parameters["full_attention"] |= {"rope_type": "dynamic", "factor": 2.0}
    config.save_pretrained(copy)
    with pytest.raises(ExportError, match="rope_type dynamic of full_attention is unsupported"):
        open_source(str(copy))


def test_padding_that_sees_only_padding_stays_finite(
    bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all scores are low, the mask must not push them beyond fp16's range."""
    source = _with_low_scores(bert_folder, tmp_path / "low")
    ids = torch.randint(5, 600, (2, 60), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    ids[1, 20:], mask[1, 20:] = 0, 0
    inputs = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    write_graph(source, tmp_path / "fp32.onnx")
    with torch.no_grad():
        reference = export.graph.SentenceEncoder(source).eval()(ids, mask).numpy()
    fused = fuse(source, tmp_path / "fp32.onnx", [inputs])
    write_fp16(fused, tmp_path)
    vectors = run_in_fp16(tmp_path / "model.fp16.onnx", inputs)
    assert cosines(vectors, reference).min() > 0.9999
    # The control: fp16's lowest number makes them infinite.
    monkeypatch.setattr(export.fp16, "_MASKED", export.fp16._LOWEST)
    write_fp16(fused, tmp_path)
    assert not np.isfinite(run_in_fp16(tmp_path / "model.fp16.onnx", inputs)[1]).any()


def _with_low_scores(bert: Path, folder: Path) -> Source:
    """An encoder in which every query points away from every key, at any position."""
    model = transformers.ModernBertModel.from_pretrained(save(bert, folder, attention_bias=True))
    layers: Any = model.layers
    with torch.no_grad():
        for layer in layers:
            bias = layer.attn.Wqkv.bias.view(3, 4, 8)
            # the pair that rotates most slowly with the distance
            bias[0, :, 3::4], bias[1, :, 3::4] = 12.0, -12.0
    model.save_pretrained(folder)
    return open_source(str(folder))
