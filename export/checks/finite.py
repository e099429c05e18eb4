"""Check that the weights of a source, the constants of a graph and their outputs are finite."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch

from docsplit.bundles.manifest import PrecisionName
from docsplit.engines.openvino_cpu import openvino_core
from export.checkpoint.source import Checkpoint
from export.errors import ExportError


def check_weights(source: Checkpoint) -> None:
    """Check every parameter of a checkpoint.

    Raises:
        ExportError: a parameter is not finite. The message names it.
    """
    for name, tensor in source.model.state_dict().items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ExportError(f"{source.name}: the weight {name} holds values that are not finite")


def check_values(what: str, sides: Mapping[str, np.ndarray]) -> None:
    """Check what the sides of a comparison computed.

    Args:
        what: the checkpoint or precision that is compared.
        sides: the values by the name of their side.

    Raises:
        ExportError: a value is not finite. The message names ``what`` and the side.
    """
    for side, values in sides.items():
        if not np.isfinite(values).all():
            raise ExportError(f"{what}: {side} gives values that are not finite")


def check_graph(precision: PrecisionName, path: Path) -> None:
    """Check every constant of a written graph.

    Raises:
        ExportError: a constant is not finite. The message names the file and the constant.
    """
    for name, values in (_openvino if precision == "int8" else _onnx)(path):
        # A single infinity is a bound, for example for masking attention.
        wrong = np.isnan(values) if values.size == 1 else ~np.isfinite(values)
        if wrong.any():
            raise ExportError(f"{path.name}: the constant {name} holds values that are not finite")


def _onnx(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    model = onnx.load(path)
    yield from _tensors(model.graph.initializer, model.graph.node)
    for function in model.functions:
        yield from _tensors([], function.node)


def _tensors(
    initializers: Iterable[onnx.TensorProto], nodes: Iterable[onnx.NodeProto]
) -> Iterator[tuple[str, np.ndarray]]:
    held = [(tensor.name, tensor) for tensor in initializers]
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                held.append((node.output[0], attribute.t))
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from _tensors(attribute.g.initializer, attribute.g.node)
    for name, tensor in held:
        values = onnx.numpy_helper.to_array(tensor)
        if np.issubdtype(values.dtype, np.floating):
            yield name, values


def _openvino(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    for op in openvino_core().read_model(path).get_ops():
        if op.get_type_name() == "Constant" and op.get_element_type().is_real():
            yield op.get_friendly_name(), op.data
