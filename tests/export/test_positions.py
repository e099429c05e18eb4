"""Buckets of relative positions, which fp16 must not round."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.fp16 import FILE, Fused, fuse, position_nodes, write_fp16
from export.graph import write_graph
from export.source import open_source, reference_vectors
from export.texts import batches, write_tokenizer
from tests.export.checkpoints import save_encoder

WINDOW = 96
TEXT = " ".join(["one more word of a text"] * 40)


@pytest.fixture(scope="module")
def fused(
    request: pytest.FixtureRequest,
    bert_folder: Path,
    roberta_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Fused, dict[str, np.ndarray]]:
    """A graph with relative positions, and an input that fills its window."""
    folder = tmp_path_factory.mktemp(request.param)
    save_encoder(request.param, bert_folder, roberta_folder, folder / "source", layers=1)
    source = open_source(str(folder / "source"), max_tokens=WINDOW)
    tokenizer = write_tokenizer(source, folder, [TEXT])
    with pytest.MonkeyPatch.context() as patch:
        # as in folders of finished graphs, which hold no tables
        patch.setattr("export.graph.tabled_buckets", lambda *_: nullcontext())
        write_graph(source, folder / "model.onnx")
    pad = int(source.tokenizer.pad_token_id)
    inputs = batches(tokenizer, [TEXT], max_tokens=WINDOW, pad_token_id=pad, size=1)
    assert inputs[0]["input_ids"].shape == (1, WINDOW)
    return fuse(source, folder / "model.onnx", inputs), inputs[0]


def whole_numbers(
    model: onnx.ModelProto, names: list[str], inputs: dict[str, np.ndarray]
) -> list[np.ndarray]:
    """What the nodes ``names`` cast to whole numbers."""
    given = onnx.ModelProto()
    given.CopyFrom(model)
    del given.graph.output[:]
    for node in given.graph.node:
        to = next((a.i for a in node.attribute if a.name == "to"), None)
        if node.op_type == "Cast" and node.name in names and to == TensorProto.INT64:
            given.graph.output.append(helper.make_tensor_value_info(node.output[0], to, None))
    session = onnxruntime.InferenceSession(
        given.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return [*session.run(None, inputs)]


@pytest.mark.parametrize("fused", ["mpnet", "deberta-v2"], indirect=True)
def test_fp16_puts_distances_into_the_same_buckets(
    fused: tuple[Fused, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    one, inputs = fused
    expected = whole_numbers(one.model, one.exact, inputs)
    write_fp16(one, tmp_path)
    for found, exact in zip(
        whole_numbers(onnx.load(tmp_path / FILE), one.exact, inputs), expected, strict=True
    ):
        assert np.array_equal(found, exact)


@pytest.mark.parametrize("fused", ["mpnet"], indirect=True)
def test_rounded_logarithms_fall_into_other_buckets(
    fused: tuple[Fused, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    one, inputs = fused
    expected = whole_numbers(one.model, one.exact, inputs)
    write_fp16(replace(one, exact=[]), tmp_path)
    found = whole_numbers(onnx.load(tmp_path / FILE), one.exact, inputs)
    assert not all(map(np.array_equal, found, expected))


@pytest.mark.parametrize("family", ["mpnet", "deberta-v2"])
def test_traced_graphs_read_buckets_from_a_table(
    family: str, bert_folder: Path, roberta_folder: Path, tmp_path: Path
) -> None:
    save_encoder(family, bert_folder, roberta_folder, tmp_path / "source", layers=1)
    source = open_source(str(tmp_path / "source"), max_tokens=WINDOW)
    reference = reference_vectors(source, [TEXT]).numpy()
    write_graph(source, tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    assert all(node.op_type != "Log" for node in model.graph.node)
    assert np.array_equal(reference_vectors(source, [TEXT]).numpy(), reference)
    [inputs] = batches(
        write_tokenizer(source, tmp_path, [TEXT]),
        [TEXT],
        max_tokens=WINDOW,
        pad_token_id=int(source.tokenizer.pad_token_id),
        size=1,
    )
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    assert session.run(None, inputs)[0] @ reference[0] > 0.999999


@pytest.mark.parametrize("fused", ["mpnet", "deberta-v2"], indirect=True)
def test_a_graph_without_tables_computes_logarithms(
    fused: tuple[Fused, dict[str, np.ndarray]],
) -> None:
    assert any(node.op_type == "Log" for node in fused[0].model.graph.node)


def test_a_graph_without_computed_positions_keeps_its_bytes(
    bert_folder: Path, tmp_path: Path
) -> None:
    write_graph(open_source(str(bert_folder), max_tokens=WINDOW), tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    for node in model.graph.node:
        node.name = ""
    before = model.SerializeToString(deterministic=True)
    assert any(node.op_type == "Cast" for node in model.graph.node)
    assert position_nodes(model.graph) == []
    assert model.SerializeToString(deterministic=True) == before


def test_values_that_need_a_product_are_no_positions() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["hidden"], name="product"),
        helper.make_node("Cast", ["hidden"], ["rank"], name="rank", to=TensorProto.INT64),
        helper.make_node("Shape", ["hidden"], ["size"], name="size"),
        helper.make_node("Cast", ["size"], ["real"], name="real", to=TensorProto.FLOAT),
        helper.make_node("Log", ["real"], ["log"]),
        helper.make_node("Cast", ["log"], ["bucket"], name="bucket", to=TensorProto.INT64),
    ]
    graph = helper.make_graph(
        nodes,
        "positions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("bucket", TensorProto.INT64, [2])],
        [numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")],
    )
    assert position_nodes(graph) == ["size", "real", "Log_at_4", "bucket"]
