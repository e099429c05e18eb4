"""Hold graphs in memory and in files, and widen those in fp16."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper, shape_inference
from onnx.external_data_helper import save_external_data, set_external_data

if TYPE_CHECKING:
    import openvino as ov


# Of weights in one file. A protobuf message ends at 2 GiB, and the graph needs room, too.
MOST_BYTES = 2_000_000_000
# smaller constants stay in the graph, where shape inference reads them
_INSIDE = 1024


def copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a graph of any size."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def fits(model: onnx.ModelProto) -> bool:
    """Whether one file can hold the graph."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= MOST_BYTES


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a graph, the same bytes for the same graph.

    The weights of a graph that fits no file go to ``<name>.data`` next to it, as ONNX's external
    data. This takes them out of ``model``.
    """
    if not fits(model):
        weights = path.with_name(f"{path.name}.data")
        weights.unlink(missing_ok=True)
        for tensor in model.graph.initializer:
            if len(tensor.raw_data) >= _INSIDE:
                set_external_data(tensor, weights.name)
                save_external_data(tensor, str(path.parent))
                tensor.ClearField("raw_data")
    path.write_bytes(model.SerializeToString(deterministic=True))


def save_openvino(model: ov.Model, path: Path) -> None:
    """Write a graph of OpenVINO's with the types that its weights have, and its ``.bin``.

    Raises:
        OSError: the disk is full or not writable.
    """
    import openvino as ov

    try:
        ov.save_model(model, path, compress_to_fp16=False)
    except RuntimeError as error:
        raise OSError(errno.EIO, f"could not be written ({error})", str(path)) from error


def open_session(model: onnx.ModelProto, options: Any) -> Any:
    """ONNX Runtime's session on the CPU for a graph in memory."""
    import onnxruntime as ort

    providers = ["CPUExecutionProvider"]
    if fits(model):
        return ort.InferenceSession(model.SerializeToString(), options, providers=providers)
    with tempfile.TemporaryDirectory(prefix="docsplit-export-") as folder:
        path = Path(folder) / "model.onnx"
        save(copy(model), path)
        return ort.InferenceSession(path, options, providers=providers)


_HALF, _FULL = TensorProto.FLOAT16, TensorProto.FLOAT
# fp16's lowest number stands for minus infinity in masks
_MASK = float(np.finfo(np.float16).min)
_FULL_MASK = np.finfo(np.float32).min


def is_half(model: onnx.ModelProto) -> bool:
    """Whether the graph has weights in fp16."""
    return any(tensor.data_type == _HALF for tensor in model.graph.initializer)


def widen(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with all values in fp32: weights, constants, inputs and outputs.

    Casts between fp16 and fp32 disappear, so that the graph has the operators of one in fp32.
    """
    typed = shape_inference.infer_shapes(model).graph
    values = (*typed.input, *typed.value_info, *typed.output)
    floats = {v.name for v in values if v.type.tensor_type.elem_type in (_HALF, _FULL)}
    floats |= {t.name for t in model.graph.initializer if t.data_type in (_HALF, _FULL)}
    wide = copy(model)
    graph = wide.graph
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == _HALF:
            value.type.tensor_type.elem_type = _FULL
    for tensor in _tensors(graph):
        if tensor.data_type == _HALF:
            tensor.CopyFrom(numpy_helper.from_array(_wide(tensor), tensor.name))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == _HALF:
                attribute.i = _FULL
    _drop_casts(graph, floats)
    return wide


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t


def _wide(tensor: TensorProto) -> np.ndarray:
    values: np.ndarray = numpy_helper.to_array(tensor).astype(np.float32)
    if values.size == 1 and values.min() <= _MASK:
        return np.full_like(values, _FULL_MASK)
    return values


def _drop_casts(graph: onnx.GraphProto, floats: set[str]) -> None:
    """Remove casts from a floating-point number to one."""
    outputs = {value.name for value in graph.output}
    made = {name for node in graph.node for name in node.output} - outputs
    same: dict[str, str] = {}
    kept = []
    for node in graph.node:
        to = next((a.i for a in node.attribute if a.name == "to"), None)
        if node.op_type == "Cast" and to == _FULL and node.input[0] in floats:
            [old], [new] = node.input, node.output
            if new not in outputs:
                same[new] = old
                continue
            if old in made and old not in same:
                # the output gets the value's place
                same[old] = new
                made.discard(old)
                continue
        kept.append(node)

    def place(name: str) -> str:
        while name in same:
            name = same[name]
        return name

    for node in kept:
        node.input[:] = [place(name) for name in node.input]
        node.output[:] = [place(name) for name in node.output]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del graph.node[:]
    graph.node.extend(copies)
