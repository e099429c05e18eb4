"""W8A8 form for CPUs: OpenVINO IR by nncf's post-training quantisation."""

import itertools
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nncf
import numpy as np
import openvino as ov
from nncf.openvino.quantization.backend_parameters import BackendParameters
from openvino._offline_transformations import compress_quantize_weights_transformation

from docsplit.engines.openvino_cpu import openvino_core
from export.errors import ExportError, refused
from export.graph import TAIL
from export.storage import save_openvino

FILE = "model.int8.xml"
# SmoothQuant's alpha (Xiao et al. 2023, equation 4). nncf's default of .95 moves more range into
# the weights. Processors without VNNI, which add pairs of products in 16 bits, then saturate more.
SMOOTHING = 0.8
# fp32 constants with at least this many values are weights, not scales
_MATRIX = 65_536
# times that nncf reads the calibration inputs: for SmoothQuant, ranges and biases
_PASSES = 3


def quantise(
    fp32: Path,
    batches: list[dict[str, np.ndarray]],
    *,
    keep_float: str | None = None,
    advance: Callable[[float], None] = lambda share: None,
) -> ov.Model:
    """Quantise the graph ``fp32``. Its weights stay fp32, each before a quantiser.

    Args:
        fp32: the unfused ONNX graph.
        batches: calibration inputs, int64 ``[batch, tokens]`` by name.
        keep_float: regular expression, matched from the start of operators' names. Matching
            operators stay in floating point, with weights in fp16.
        advance: called with the share that is done.

    Raises:
        ExportError: ``keep_float`` matches no operator, or is not a regular expression, or nncf
            cannot quantise the graph.
    """
    model = openvino_core().read_model(fp32)
    patterns = [f"{TAIL}.*"]
    if keep_float is not None:
        _check_pattern(keep_float, [op.get_friendly_name() for op in model.get_ops()])
        patterns.append(keep_float)
    read = itertools.count(1)

    def count(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        advance(min(next(read) / (_PASSES * len(batches)), 1.0))
        return batch

    with _quiet_nncf(), refused("int8: nncf cannot quantise this graph"):
        quantised: ov.Model = nncf.quantize(
            model,
            nncf.Dataset(batches, count),
            subset_size=len(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            preset=nncf.QuantizationPreset.MIXED,
            ignored_scope=nncf.IgnoredScope(patterns=patterns, validate=False),
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=SMOOTHING),
                backend_params={BackendParameters.COMPRESS_WEIGHTS: False},
            ),
        )
    _forget_setting(quantised)
    return quantised


def _forget_setting(quantised: ov.Model) -> None:
    """Describe the graph as it is written, with weights in int8."""
    path = ["nncf", "quantization", "advanced_parameters"]
    stated = quantised.get_rt_info(path).astype(str)
    setting = f"{BackendParameters.COMPRESS_WEIGHTS!r}: False"
    quantised.set_rt_info(stated.replace(setting, ""), path)


def write_int8(quantised: ov.Model, folder: Path) -> dict[str, int]:
    """Write ``model.int8.xml`` and ``.bin`` into ``folder``. This changes the graph: quantised
    weights become int8 and the others fp16, and operators get other names.

    Returns:
        Counts of the quantisers and of the matrix products with and without them.
    """
    compress_quantize_weights_transformation(quantised)
    _store_weights_as_fp16(quantised)
    _name_by_place(quantised)
    save_openvino(quantised, folder / FILE)
    products = [op for op in quantised.get_ops() if op.get_type_name() == "MatMul"]
    integer = sum(_has_quantised_inputs(op) for op in products)
    quantisers = sum(op.get_type_name() == "FakeQuantize" for op in quantised.get_ops())
    counts = {"FakeQuantize": quantisers, "MatMul int8": integer}
    return counts | {"MatMul float": len(products) - integer}


def _check_pattern(pattern: str, names: list[str]) -> None:
    try:
        found = any(re.match(pattern, name) for name in names)
    except re.error as error:
        raise ExportError(f"--keep-float {pattern}: {error}") from error
    if not found:
        products = [name for name in names if name.endswith("MatMul")]
        raise ExportError(
            f"--keep-float {pattern}: no operator has such a name; "
            f"examples are {', '.join(products[:2]) or names[0]}"
        )


def _has_quantised_inputs(op: ov.Node) -> bool:
    """Whether activations come from a quantiser, directly or through a reshape or transpose."""
    node = op.input_value(0).get_node()
    while node.get_type_name() in ("Reshape", "Transpose"):
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "FakeQuantize")


def _store_weights_as_fp16(model: ov.Model) -> None:
    """Store matrices that stayed in fp32 as fp16, except those of the tail.

    ``save_openvino`` does not compress quantised models.
    """
    for op in model.get_ops():
        if op.get_type_name() != "Constant" or op.get_element_type() != ov.Type.f32:
            continue
        if len(op.get_output_shape(0)) < 2 or np.prod(op.get_output_shape(0)) < _MATRIX:
            continue
        users = op.output(0).get_target_inputs()
        if any(user.get_node().get_friendly_name().startswith(TAIL) for user in users):
            continue
        half = ov.opset13.constant(op.data.astype(np.float16))
        wide = ov.opset13.convert(half, "f32")
        for user in users:
            user.replace_source_output(wide.output(0))


def _name_by_place(model: ov.Model) -> None:
    """Name operators by their position in the graph.

    OpenVINO numbers unnamed operators by a counter that continues between models. A second export
    would therefore have other names, another digest and another revision.
    """
    for place, op in enumerate(model.get_ordered_ops()):
        if op.get_type_name() not in ("Parameter", "Result"):
            op.set_friendly_name(f"{op.get_type_name()}_{place}")


@contextmanager
def _quiet_nncf() -> Iterator[None]:
    logger = logging.getLogger("nncf")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
