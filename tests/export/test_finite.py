"""Weights that are not finite, in the checkpoint and in the written graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino as ov
import pytest
import torch
from sentence_transformers import SentenceTransformer

from docsplit.engines.openvino_cpu import openvino_core
from export import fp16
from export.errors import ExportError
from export.fp16 import FILE, Fused
from export.gate import check_graph, check_weights
from export.pipeline import Request
from export.pipeline import export as run
from export.source import open_source
from tests.export.conftest import save_sentence_transformer


def poisoned(encoder: Path, folder: Path, name: str, value: float) -> Path:
    """A checkpoint with one weight of ``value``."""
    save_sentence_transformer(encoder, folder, pooling="mean", normalise=True)
    model = SentenceTransformer(str(folder), device="cpu")
    network: Any = model[0].auto_model
    with torch.no_grad():
        network.get_parameter(name).view(-1)[3] = value
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def request(source: Path, dest: Path, text_file: Path) -> Request:
    return Request(
        source=str(source),
        dest=dest,
        licence="MIT",
        max_tokens=64,
        precisions=("fp16",),
        calibration=text_file,
        paragraphs=200,
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_checkpoint_with_one_weight_that_is_not_finite_is_refused(
    bert_folder: Path, text_file: Path, tmp_path: Path, value: float
) -> None:
    name = "encoder.layer.1.output.dense.weight"
    source = poisoned(bert_folder, tmp_path / "poisoned", name, value)
    with pytest.raises(ExportError, match=rf"poisoned: the weight .*{name} holds .* not finite"):
        run(request(source, tmp_path / "bundle", text_file))
    assert not (tmp_path / "bundle").exists()


def test_a_finite_checkpoint_is_accepted(bert_folder: Path) -> None:
    check_weights(open_source(str(bert_folder)))


WRITE = fp16.write_fp16


def write_overflowing(fused: Fused, folder: Path, kept: Collection[str] = ()) -> dict[str, int]:
    """The fp16 form of a plain cast, with one weight outside fp16's range."""
    written = WRITE(fused, folder, kept)
    model = onnx.load(folder / FILE)
    tensor = next(t for t in model.graph.initializer if len(t.dims) == 2)
    weights = onnx.numpy_helper.to_array(tensor).astype(np.float32)
    weights[1, 2] = 70_000
    with np.errstate(over="ignore"):
        tensor.CopyFrom(onnx.numpy_helper.from_array(weights.astype(np.float16), tensor.name))
    onnx.save(model, folder / FILE)
    return written


def test_a_weight_that_overflows_fp16_is_refused(
    bert_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fp16, "write_fp16", write_overflowing)
    with pytest.raises(ExportError, match=r"model\.fp16\.onnx: the constant .* not finite"):
        run(request(bert_folder, tmp_path / "bundle", text_file))
    assert list(tmp_path.iterdir()) == []


def small_graph(path: Path, weights: np.ndarray, bound: float, *, constant: bool = False) -> Path:
    """y = max(x + weights, bound). The weights are an initializer or a node."""
    tensor = onnx.numpy_helper.from_array(weights, "weights")
    nodes = [
        onnx.helper.make_node("Add", ["x", "weights"], ["sum"]),
        onnx.helper.make_node("Max", ["sum", "bound"], ["y"]),
    ]
    if constant:
        nodes.insert(0, onnx.helper.make_node("Constant", [], ["weights"], value=tensor))
    limit = onnx.numpy_helper.from_array(np.array(bound, dtype=np.float32), "bound")
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [len(weights)])
        for name in "xy"
    ]
    held = [limit] if constant else [limit, tensor]
    graph = onnx.helper.make_graph(nodes, "small", ends[:1], ends[1:], held)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    return path


def as_ir(onnx_path: Path) -> Path:
    path = onnx_path.with_suffix(".xml")
    ov.save_model(openvino_core().read_model(onnx_path), path, compress_to_fp16=False)
    return path


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("form", [as_ir, lambda path: path])
def test_constants_of_a_graph(tmp_path: Path, form: Callable[[Path], Path], constant: bool) -> None:
    def check(weights: list[float], bound: float = -np.inf) -> None:
        values = np.array(weights, dtype=np.float32)
        path = form(small_graph(tmp_path / "graph.onnx", values, bound, constant=constant))
        check_graph("int8" if path.suffix == ".xml" else "fp16", path)

    # a single infinity is a bound
    check([1.0, 2.0])
    for wrong in (np.nan, np.inf, -np.inf):
        with pytest.raises(ExportError, match=r"^graph\.\w+: the constant \S+ holds values"):
            check([1.0, wrong])
    with pytest.raises(ExportError, match="not finite"):
        check([1.0, 2.0], np.nan)


def test_constants_of_branches_and_functions_are_checked(tmp_path: Path) -> None:
    inner = onnx.load(small_graph(tmp_path / "inner.onnx", np.array([1, np.nan], np.float32), 0))
    identity = onnx.helper.make_node("Identity", ["x"], ["y"])
    ends = [list(inner.graph.input), list(inner.graph.output)]
    function = onnx.helper.make_function(
        "own", "Inner", ["x"], ["y"], [constant_of(inner), identity], inner.opset_import
    )
    branches = onnx.helper.make_node(
        "If", ["x"], ["y"], then_branch=inner.graph, else_branch=inner.graph
    )
    for nodes, functions in (([identity], [function]), ([branches], []), ([identity], [])):
        graph = onnx.helper.make_graph(nodes, "outer", ends[0], ends[1])
        path = tmp_path / "outer.onnx"
        onnx.save(onnx.helper.make_model(graph, functions=functions), path)
        if functions or nodes == [branches]:
            with pytest.raises(ExportError, match=r"outer\.onnx: the constant weights holds"):
                check_graph("fp16", path)
        else:
            check_graph("fp16", path)


def constant_of(model: onnx.ModelProto) -> onnx.NodeProto:
    """A node that holds the weights of ``small_graph``."""
    [weights] = [tensor for tensor in model.graph.initializer if tensor.name == "weights"]
    return onnx.helper.make_node("Constant", [], ["weights"], value=weights)
