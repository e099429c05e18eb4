"""Put pooling and normalisation behind a graph that a source brings along."""

from collections.abc import Mapping
from pathlib import Path

import onnx
import torch
from onnx import TensorProto, compose, helper, inliner, version_converter
from torch import Tensor, nn

from export.checkpoint.onnx_folder import GraphEncoder
from export.errors import ExportError
from export.storage import copy, fits, save


def join(
    encoder: GraphEncoder, tail: nn.Module, path: Path, *, opset: int, names: list[str]
) -> None:
    """Write the graph of ``encoder`` with ``tail`` behind it.

    Args:
        encoder: the source's graph.
        tail: from hidden values and mask to unit vectors, in a scope named ``tail``.
        path: the file to write.
        opset: version of the operators.
        names: the names of ids, mask and output.
    """
    ids, mask, output = names
    model = _plain(encoder, opset)
    graph, roles = model.graph, encoder.roles
    kept = {tensor.name for tensor in graph.initializer}
    types = {v.name: v.type.tensor_type.elem_type for v in graph.input if v.name not in kept}
    first = []
    # optimum names the output of a whole model as a bundle does
    hidden = f"source/{roles.output}"
    renamed = {roles.output: hidden}
    for new, old in ((ids, roles.ids), (mask, roles.mask)):
        wide = types[old] == TensorProto.INT64
        renamed[old] = new if wide else f"source/{old}"
        if not wide:
            first.append(
                helper.make_node("Cast", [new], [renamed[old]], f"/{new}/Cast", to=types[old])
            )
    _rename(graph, renamed)
    if roles.types is not None:
        zero = helper.make_tensor("value", types[roles.types], [1], [0])
        first.append(helper.make_node("Shape", [ids], ["token_types/shape"], "/token_types/Shape"))
        first.append(
            helper.make_node(
                "ConstantOfShape",
                ["token_types/shape"],
                [roles.types],
                "/token_types/ConstantOfShape",
                value=zero,
            )
        )
    traced = _traced(tail, encoder, path.with_name("tail.onnx"), opset, output).graph
    _rename(traced, {"hidden": hidden, "mask": mask})
    nodes = [*first, *graph.node, *traced.node]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(copies)
    graph.initializer.extend(traced.initializer)
    for name in (ids, mask):
        shape = ["batch", "tokens"]
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
    graph.output.extend(traced.output)
    save(model, path)
    onnx.checker.check_model(path)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename values, also where branches read them."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, names)


def _plain(encoder: GraphEncoder, opset: int) -> onnx.ModelProto:
    """The graph with operators of version ``opset``, without functions of its own."""
    model = copy(encoder.model)
    if model.functions:
        model = inliner.inline_local_functions(model)
    [version] = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")]
    if version == opset:
        return model
    if not fits(model):
        raise ExportError(
            f"{encoder.path}: has operators of opset {version}, and more weights than ONNX's "
            f"converter takes; export the graph with --opset {opset}"
        )
    try:
        converted: onnx.ModelProto = version_converter.convert_version(model, opset)
    except Exception as error:  # the converter's errors share no base
        raise ExportError(
            f"{encoder.path}: has operators of opset {version}, which cannot be converted to "
            f"{opset}; export the graph with --opset {opset}"
        ) from error
    return converted


def _traced(
    tail: nn.Module, encoder: GraphEncoder, path: Path, opset: int, output: str
) -> onnx.ModelProto:
    hidden = torch.rand(2, 8, int(encoder.config.hidden_size))
    if encoder.roles.pooled:
        hidden = hidden[:, 0]
    axes = {0: "batch", 1: "tokens"}
    with torch.no_grad():
        torch.onnx.export(
            _Scope(tail),
            (hidden, torch.ones(2, 8, dtype=torch.int64)),
            path,
            input_names=["hidden", "mask"],
            output_names=[output],
            dynamic_axes={"hidden": {0: "batch"} if encoder.roles.pooled else axes, "mask": axes}
            | {output: {0: "batch"}},
            opset_version=opset,
            dynamo=False,
        )
    prefixed: onnx.ModelProto = compose.add_prefix(
        onnx.load(path),
        "tail/",
        rename_nodes=False,
        rename_edges=True,
        rename_inputs=False,
        rename_outputs=False,
        rename_initializers=True,
    )
    return prefixed


class _Scope(nn.Module):
    def __init__(self, tail: nn.Module) -> None:
        super().__init__()
        self.tail = tail

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Names the nodes of the tail ``/tail/…``."""
        vectors: Tensor = self.tail(hidden, mask)
        return vectors
