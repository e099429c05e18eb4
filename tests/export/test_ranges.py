"""Nodes whose values exceed fp16, in tiny encoders with scaled weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper, numpy_helper
from transformers import BertModel

import export.fp16
from docsplit.bundles.manifest import Ranges
from export.errors import ExportError
from export.fp16 import FILE, FP16_MAX, SHARE, fuse, measure_ranges, write_fp16
from export.gate import measure
from export.graph import OUTPUT, TAIL, write_graph
from export.source import Source, open_source, reference_vectors
from export.texts import batches, write_tokenizer

Change = Callable[[BertModel], None]


def feed_forward(model: Any) -> None:
    """Values beyond fp16 before a layer norm, which scales them back: the vectors hardly change."""
    dense = model.encoder.layer[0].output.dense
    dense.weight *= 1.5e5
    dense.bias *= 1.5e5


def projection(model: Any) -> None:
    """Values of attention beyond fp16, which the next weights scale back."""
    model.encoder.layer[0].attention.self.value.weight *= 1e5
    model.encoder.layer[0].attention.output.dense.weight /= 1e5


def queries(model: Any) -> None:
    """Large values only inside a fused kernel: its input and output do not change."""
    model.encoder.layer[1].attention.self.query.weight *= 1e5
    model.encoder.layer[1].attention.self.key.weight /= 1e5


@pytest.fixture
def scaled(bert_folder: Path, tmp_path: Path) -> Callable[[Change], Source]:
    def make(change: Change) -> Source:
        folder = shutil.copytree(bert_folder, tmp_path / "scaled")
        model = BertModel.from_pretrained(folder)
        with torch.no_grad():
            change(model)
        model.save_pretrained(folder)
        return open_source(str(folder), max_tokens=64)

    return make


def written(source: Source, texts: list[str], folder: Path) -> tuple[Ranges, onnx.ModelProto]:
    write_graph(source, folder / "model.onnx")
    return converted(source, texts, folder)


def converted(source: Source, texts: list[str], folder: Path) -> tuple[Ranges, onnx.ModelProto]:
    """The fp16 graph of the fp32 graph in ``folder``."""
    tokenizer = write_tokenizer(source, folder, texts)
    inputs = batches(tokenizer, texts, max_tokens=64, pad_token_id=0, size=8)
    fused = fuse(source, folder / "model.onnx", inputs)
    write_fp16(fused, folder)
    return fused.ranges, onnx.load(folder / FILE)


def run(model: onnx.ModelProto, source: Source, texts: list[str], folder: Path) -> np.ndarray:
    tokenizer = write_tokenizer(source, folder, texts)
    [inputs] = batches(tokenizer, texts, max_tokens=64, pad_token_id=0, size=len(texts))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    vectors: np.ndarray = session.run([OUTPUT], inputs)[0]
    return vectors


def reference(source: Source, texts: list[str]) -> np.ndarray:
    return np.asarray(reference_vectors(source, texts).numpy())


def measure_nothing(*_: object, **__: object) -> Ranges:
    return Ranges(passages=1, limit=1, largest=0, largest_at="", fp32_nodes={})


def test_nodes_that_overflow_stay_fp32(
    scaled: Callable[[Change], Source],
    sentences: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = scaled(feed_forward)
    ranges, model = written(source, sentences, tmp_path)
    assert ranges.largest > FP16_MAX
    assert ranges.limit == SHARE * FP16_MAX
    assert ranges.passages == len(sentences)
    wide = "/encoder/encoder/layer.0/output/dense/MatMul"
    assert list(ranges.fp32_nodes) == [wide, "SkipLayerNorm_AddBias_1"]
    assert ranges.fp32_nodes[wide].magnitude == ranges.largest
    assert {node.of for node in ranges.fp32_nodes.values()} == {"activation"}
    expected = reference(source, sentences)
    vectors = run(model, source, sentences, tmp_path)
    assert (vectors * expected).sum(axis=1).min() > 0.9999
    # the control: converted without the ranges, the same encoder gives NaN
    monkeypatch.setattr(export.fp16, "measure_ranges", measure_nothing)
    _, narrow = converted(source, sentences, tmp_path)
    overflown = run(narrow, source, sentences, tmp_path)
    assert not np.isfinite(overflown).all()
    with pytest.raises(ExportError, match="not finite"):
        measure("fp16", overflown, expected, engine="test")


@pytest.mark.parametrize("change", [projection, queries])
def test_inner_values_of_a_fused_attention_count(
    scaled: Callable[[Change], Source], sentences: list[str], tmp_path: Path, change: Change
) -> None:
    source = scaled(change)
    ranges, model = written(source, sentences, tmp_path)
    layer = 0 if change is projection else 1
    assert f"Attention_{layer}" in ranges.fp32_nodes
    assert f"Attention_{1 - layer}" not in ranges.fp32_nodes
    vectors = run(model, source, sentences, tmp_path)
    assert (vectors * reference(source, sentences)).sum(axis=1).min() > 0.9999
    # the projection of the other layer in fp16, this one's in fp32
    types = {t.name: t.data_type for t in model.graph.initializer}
    assert types[f"Attention_{layer}_qkv_weight"] == onnx.TensorProto.FLOAT
    assert types[f"Attention_{1 - layer}_qkv_weight"] == onnx.TensorProto.FLOAT16


def test_a_weight_beyond_fp16_is_named(
    scaled: Callable[[Change], Source], sentences: list[str], tmp_path: Path
) -> None:
    def one(model: Any) -> None:
        model.encoder.layer[1].intermediate.dense.weight[0, 0] = 1e5

    ranges, model = written(scaled(one), sentences, tmp_path)
    wide = ranges.fp32_nodes["/encoder/encoder/layer.1/intermediate/dense/MatMul"]
    assert (wide.kernel, wide.of, wide.magnitude) == ("MatMul", "weight", 1e5)
    largest = max(np.abs(numpy_helper.to_array(t)).max() for t in model.graph.initializer)
    assert largest == 1e5


def test_an_encoder_within_range_has_no_fp32_nodes(
    bert_folder: Path, sentences: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(str(bert_folder), max_tokens=64)
    ranges, _ = written(source, sentences, tmp_path)
    assert ranges.fp32_nodes == {}
    assert 1 < ranges.largest < 100
    with_ranges = (tmp_path / FILE).read_bytes()
    monkeypatch.setattr(export.fp16, "measure_ranges", measure_nothing)
    converted(source, sentences, tmp_path)
    assert (tmp_path / FILE).read_bytes() == with_ranges


def graph(*nodes: onnx.NodeProto, **constants: np.ndarray) -> onnx.ModelProto:
    made = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["rows", "tokens"])],
        [helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("value", "wide"), [(-3.4e38, []), (-2e4, ["add", "relu"])])
def test_minus_infinity_of_a_mask_does_not_count(value: float, wide: list[str]) -> None:
    model = graph(
        helper.make_node("Cast", ["ids"], ["floats"], "cast", to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", ["floats", "masked"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["out"], "relu"),
        masked=np.array([value, 0], dtype=np.float32),
    )
    found = measure_ranges(model, [{"ids": np.array([[3, 7]])}], outside=[f"{TAIL}Mul"])
    assert list(found.fp32_nodes) == wide
    assert found.largest == (7 if not wide else 19_997)


def test_integers_and_the_tail_are_left_out() -> None:
    model = graph(
        helper.make_node("Mul", ["ids", "many"], ["product"], "integers"),
        helper.make_node("Div", ["product", "many"], ["few"], "again"),
        helper.make_node("Cast", ["few"], ["floats"], "cast", to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "wide"], ["out"], f"{TAIL}Mul"),
        many=np.array(1_000_000),
        wide=np.array(1e6, dtype=np.float32),
    )
    inputs = [{"ids": np.array([[3, 7]])}]
    assert measure_ranges(model, inputs, outside=[f"{TAIL}Mul"]).fp32_nodes == {}
    # the control: in another place such a node counts
    assert list(measure_ranges(model, inputs, outside=["/other/Mul"]).fp32_nodes) == [f"{TAIL}Mul"]
