"""Choose the engine, the graph and the precision of a bundle on this machine, with the reason.

The service chooses so, and so does every command that promises the vectors of the service.
"""

import importlib.metadata
import importlib.util
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from docsplit.bundles.manifest import BundleError, PrecisionName
from docsplit.bundles.processor import Processor

EngineName = Literal["openvino", "onnx-cpu", "onnx-cuda"]
Arithmetic = Literal["f32", "bf16", "fp16", "int8"]
EngineWish = Literal["auto", "openvino", "onnx-cpu", "onnx-cuda"]
ArithmeticWish = Literal["auto", "f32", "bf16", "fp16", "int8"]


class ChoiceError(BundleError):
    """The bundle cannot run as the settings want; the message names what is possible."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine that can be built, and the reason for choosing it."""

    engine: EngineName
    arithmetic: Arithmetic
    graph: PrecisionName
    reason: str


def choose(
    engine: EngineWish,
    arithmetic: ArithmeticWish,
    processor: Processor,
    precisions: Collection[PrecisionName],
) -> Choice:
    """Choose by the settings, the installed packages and the processor.

    Args:
        engine: the wanted engine.
        arithmetic: the wanted precision.
        processor: of this machine.
        precisions: graphs of the bundle.

    Raises:
        ChoiceError: the settings cannot be met; the message names what is possible.
    """
    name, why = _engine(engine)
    if name == "onnx-cuda":
        if arithmetic not in ("auto", "fp16"):
            raise ChoiceError(
                f"precision {arithmetic}: on CUDA the graph is fp16; use fp16 or auto"
            )
        if "packed" in precisions:
            return Choice(name, "fp16", "packed", f"{why}; the packed graph computes no padding")
        return Choice(name, "fp16", "fp16", f"{why}; the bundle has no packed graph")
    if arithmetic == "fp16":
        raise ChoiceError("precision fp16 needs CUDA; on a CPU use f32, bf16, int8 or auto")
    if name == "onnx-cpu":
        if arithmetic not in ("auto", "f32"):
            raise ChoiceError(f"precision {arithmetic}: engine onnx-cpu has f32 only; use openvino")
        return Choice(name, "f32", "fp16", f"{why}; onnx-cpu computes in f32")
    if arithmetic == "bf16" and not processor.bf16:
        raise ChoiceError(f"precision bf16: {processor.name} has no bf16; use f32 or auto")
    if arithmetic == "int8" and "int8" not in precisions:
        raise ChoiceError("precision int8: the bundle has no int8 graph")
    if arithmetic != "auto":
        graph: PrecisionName = "int8" if arithmetic == "int8" else "fp16"
        return Choice(name, arithmetic, graph, f"{why}; precision {arithmetic} was asked for")
    if "int8" in precisions and "fp16" not in precisions:
        return Choice(name, "int8", "int8", f"{why}; the bundle has no fp16 graph")
    if processor.bf16:
        return Choice(name, "bf16", "fp16", f"{why}; the processor has bf16")
    if processor.int8 and "int8" in precisions:
        return Choice(name, "int8", "int8", f"{why}; the processor has int8 dot products, no bf16")
    return Choice(
        name, "f32", "fp16", f"{why}; the processor has neither bf16 nor int8 dot products"
    )


def _engine(wish: EngineWish) -> tuple[EngineName, str]:
    if wish != "auto":
        return wish, f"engine {wish} was asked for"
    if _cuda_present():
        return "onnx-cuda", "onnxruntime-gpu and an NVIDIA device are here"
    if importlib.util.find_spec("openvino") is not None:
        return "openvino", "no CUDA, and openvino is installed"
    if importlib.util.find_spec("onnxruntime") is not None:
        return "onnx-cpu", "no CUDA and no openvino"
    raise ChoiceError("no runtime is installed: pip install 'docsplit[cpu]' or 'docsplit[gpu]'")


def _cuda_present() -> bool:
    """Whether the CUDA build of onnxruntime and an NVIDIA device exist; imports neither."""
    try:
        importlib.metadata.version("onnxruntime-gpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg"))
