"""Padding-free fp16 form for CUDA. Between the embeddings and the pooling, the tokens of all rows
are concatenated, and attention stays within each row (Zeng et al. 2022, arXiv:2208.08124)."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.transformers.convert_to_packing_mode import PackingMode
from onnxruntime.transformers.onnx_model import OnnxModel

from export.errors import ExportError
from export.graphs.fp16 import kernels, quiet_optimizer, strip
from export.graphs.graph import INPUTS, OUTPUT
from export.storage import copy, save

FILE = "model.packed.onnx"
PACKED = ("PackedAttention", "PackedMultiHeadAttention")
_CONTRIB = "com.microsoft"
# which input of each operator is the mask; its form shows how to find padding
_MASK_INPUT = {"Attention": 3, "MultiHeadAttention": 4}


def write_packed(fp16: Path, folder: Path) -> dict[str, int]:
    """Write ``model.packed.onnx`` into ``folder``: the graph ``fp16`` without its padding.

    Returns:
        The number of each fused kernel in the graph.

    Raises:
        ExportError: the graph has no attention that can be packed.
    """
    model = pack(onnx.load(str(fp16)))
    found = kernels(model)
    save(model, folder / FILE)
    return found


def pack(fused: onnx.ModelProto) -> onnx.ModelProto:
    """Insert ``RemovePadding`` before the first attention, packed attention kernels, and
    ``RestorePadding`` after the last layer norm. Values of weights, types, inputs and outputs stay.

    Raises:
        ExportError: the graph has no attention that can be packed.
    """
    model = copy(fused)
    attention = [node for node in model.graph.node if node.op_type in _MASK_INPUT]
    _check_mask(model.graph, attention)
    wrapped = OnnxModel(model)
    with quiet_optimizer():
        PackingMode(wrapped).convert(use_symbolic_shape_infer=False)
    _use_flash_attention(wrapped.model.graph)
    wrapped.topological_sort(is_deterministic=True)
    packed: onnx.ModelProto = wrapped.model
    if all(imported.domain != _CONTRIB for imported in packed.opset_import):
        packed.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    strip(packed)
    validate(packed, len(attention))
    return packed


def validate(model: onnx.ModelProto, layers: int) -> None:
    """Check a packed graph as far as possible without a GPU.

    Args:
        model: the packed graph.
        layers: number of attention operators before packing.

    Raises:
        ExportError: a kernel is missing, or inputs and outputs are not those of a bundle's graph.
        onnx.checker.ValidationError: the graph is not valid ONNX.
    """
    found = kernels(model)
    if (
        sum(found.get(kernel, 0) for kernel in PACKED) != layers
        or any(found.get(kernel) != 1 for kernel in ("RemovePadding", "RestorePadding"))
        or any(found.get(kernel) for kernel in _MASK_INPUT)
    ):
        held = ", ".join(f"{count} {kernel}" for kernel, count in found.items())
        raise ExportError(f"packed: {layers} attention layers became {held or 'nothing'}")
    onnx.checker.check_model(model)
    types = {
        value.name: (value.type.tensor_type.elem_type, len(value.type.tensor_type.shape.dim))
        for value in (*model.graph.input, *model.graph.output)
    }
    expected = dict.fromkeys(INPUTS, (onnx.TensorProto.INT64, 2))
    if types != expected | {OUTPUT: (onnx.TensorProto.FLOAT, 2)}:
        raise ExportError(f"packed: inputs and outputs are {', '.join(types)}")


def _use_flash_attention(graph: onnx.GraphProto) -> None:
    """``PackedAttention`` → ``MatMul``, ``Reshape`` and ``PackedMultiHeadAttention``.

    Only the latter has flash attention, which it uses from 513 tokens on. For shorter texts it uses
    TensorRT's fused kernels if they exist (ONNX Runtime's packed_multihead_attention.cc).

    Its packed query is ``[tokens, heads, 3, size of a head]``. The function therefore reorders the
    weight's columns: ``[q of all heads, k of all, v of all]`` → ``[q, k, v]`` of each head.
    """
    weights = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        sizes = [a for a in node.attribute if a.name == "qkv_hidden_sizes"]
        if node.op_type != "PackedAttention" or sizes or node.input[1] not in weights:
            nodes.append(node)
            continue
        weight = weights[node.input[1]]
        values = numpy_helper.to_array(weight)
        heads = next(a.i for a in node.attribute if a.name == "num_heads")
        split = values.reshape(len(values), 3, heads, -1)
        by_head = np.ascontiguousarray(split.transpose(0, 2, 1, 3)).reshape(values.shape)
        weight.CopyFrom(numpy_helper.from_array(by_head, weight.name))
        shape = np.array([-1, heads, 3, split.shape[-1]], dtype=np.int64)
        graph.initializer.append(numpy_helper.from_array(shape, f"{node.name}_shape"))
        rows, query = f"{node.name}_rows", f"{node.name}_query"
        attention = helper.make_node(
            PACKED[1],
            [query, "", "", node.input[2], *node.input[3:5]],
            list(node.output),
            name=f"{node.name}_heads",
            domain=_CONTRIB,
        )
        attention.attribute.extend(a for a in node.attribute if a.name in ("num_heads", "scale"))
        nodes += [
            helper.make_node("MatMul", list(node.input[:2]), [rows], name=f"{node.name}_project"),
            helper.make_node("Reshape", [rows, f"{node.name}_shape"], [query], name=query),
            attention,
        ]
    del graph.node[:]
    graph.node.extend(nodes)


def _check_mask(graph: onnx.GraphProto, attention: list[onnx.NodeProto]) -> None:
    """``RemovePadding`` takes a mask as row lengths; it would silently misread other masks."""
    if not attention:
        raise ExportError("packed: the fused graph has no attention kernel to pack")
    made_by = {name: node.op_type for node in graph.node for name in node.output}
    for node in attention:
        place = _MASK_INPUT[node.op_type]
        mask = node.input[place] if len(node.input) > place else ""
        if made_by.get(mask) not in ("EmbedLayerNormalization", "ReduceSum"):
            raise ExportError(
                f"packed: {node.name} masks by {mask or 'nothing'}, not by the lengths of rows"
            )
