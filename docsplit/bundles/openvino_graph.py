"""Compile a graph for OpenVINO, so that what follows the pooling computes in f32."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from docsplit.bundles.openvino_core import openvino_core

if TYPE_CHECKING:
    import openvino

_PRECISION = "INFERENCE_PRECISION_HINT"


def compile_parts(
    graph: Path, settings: Mapping[str, int | str | bool]
) -> list[openvino.CompiledModel]:
    """Compile a graph for the CPU, cut behind the pooling unless all of it computes in f32.

    Args:
        graph: ONNX or OpenVINO IR file.
        settings: of OpenVINO; without a precision OpenVINO chooses one.

    Returns:
        Models to run one after the other.
    """
    core = openvino_core()
    model = core.read_model(graph)
    first, *rest = [model] if settings.get(_PRECISION) == "f32" else behind_pooling(model)
    exact = {**settings, _PRECISION: "f32"}
    return [
        core.compile_model(first, "CPU", dict(settings)),
        *(core.compile_model(part, "CPU", exact) for part in rest),
    ]


def behind_pooling(model: openvino.Model) -> list[openvino.Model]:
    """The graph up to the input of the first matrix product on pooled vectors, and the rest.

    With bf16 as inference precision OpenVINO keeps f32 only after the last matrix product. If an
    encoder has one behind its pooling, such as a Dense module, then the pooling would run in bf16
    too, and the result of the product would be rounded to bf16. Rounded vectors depend on how many
    other texts are in the batch.

    Args:
        model: a graph whose output has the shape ``[batch, dimensions]``; it is taken apart.

    Returns:
        Graphs to run one after the other; ``[model]`` if it has no such product.
    """
    import openvino
    from openvino import opset13

    behind = _behind_tokens(model)
    products = [
        operator.input_value(0)
        for operator in model.get_ordered_ops()
        if operator.get_type_name() == "MatMul" and operator.get_name() in behind
    ]
    if not products:
        return [model]
    pooled = products[0]
    vectors = opset13.parameter(pooled.get_partial_shape(), pooled.get_element_type())
    for reader in pooled.get_target_inputs():
        reader.replace_source_output(vectors.output(0))
    rest = openvino.Model(model.get_results(), [vectors], "behind the pooling")
    return [openvino.Model([opset13.result(pooled)], model.get_parameters(), "encoder"), rest]


def _behind_tokens(model: openvino.Model) -> set[str]:
    """Names of the operators between the last one with a value for each token and the output."""
    found: set[str] = set()
    waiting = [result.input_value(0) for result in model.get_results()]
    while waiting:
        output = waiting.pop()
        operator, rank = output.get_node(), output.get_partial_shape().rank
        if rank.is_dynamic or rank.get_length() > 2 or operator.get_name() in found:
            continue
        found.add(operator.get_name())
        waiting += operator.input_values()
    return found
