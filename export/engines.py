"""Run a bundle's graphs to measure them. The service has its own engines."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from docsplit.bundles.manifest import PrecisionName
from docsplit.engines.openvino_cpu import compile_parts, openvino_core
from export.errors import ExportError
from export.source import Source

Inputs = dict[str, np.ndarray]
Encode = Callable[[Inputs], np.ndarray]


def named(ids: np.ndarray, mask: np.ndarray) -> Inputs:
    """A batch in the form that these engines take."""
    return {"input_ids": ids, "attention_mask": mask}


def open_engine(precision: PrecisionName, graph: Path, *, threads: int) -> tuple[str, Encode]:
    """The engine's name and its function: inputs int64 ``[batch, tokens]`` → the graph's output,
    float32 ``[batch, dimensions]``. It computes on the CPU; ``packed`` needs CUDA.

    Raises:
        ExportError: the precision is ``packed`` and CUDA is missing.
    """
    check_device(precision)
    if precision == "int8":
        return openvino_engine(graph, threads=threads)
    return _onnxruntime(graph, threads, "CUDA" if precision == "packed" else "CPU")


def can_run(precision: PrecisionName) -> bool:
    """Whether this machine can run a graph of ``precision``."""
    if precision != "packed":
        return True
    import onnxruntime as ort

    return "CUDAExecutionProvider" in ort.get_available_providers()


def check_device(precision: PrecisionName) -> None:
    """Refuse a precision that this machine cannot measure.

    Raises:
        ExportError: this machine cannot run a graph of ``precision``.
    """
    if not can_run(precision):
        raise ExportError(
            "packed: this machine cannot measure its parity, because its kernels need CUDA; run "
            "docsplit-export on a machine with an NVIDIA GPU and onnxruntime-gpu instead of "
            "onnxruntime"
        )


def source_engine(source: Source) -> Encode:
    """The checkpoint in fp32 by sentence-transformers: inputs int64 ``[batch, tokens]`` →
    unit vectors float32 ``[batch, dimensions]``."""
    import torch

    def encode(inputs: Inputs) -> np.ndarray:
        features = {name: torch.from_numpy(values) for name, values in inputs.items()}
        with torch.inference_mode():
            vectors = source.model(features)["sentence_embedding"].float()
        unit: np.ndarray = torch.nn.functional.normalize(vectors, dim=-1).numpy()
        return unit

    return encode


def _onnxruntime(graph: Path, threads: int, device: str) -> tuple[str, Encode]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # on busy cores a thread that spins keeps another one from its work
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    provider = f"{device}ExecutionProvider"
    if device == "CUDA":
        # the loader does not search the folders of the nvidia-* packages for CUDA and cuDNN
        ort.preload_dlls()
    session = ort.InferenceSession(graph, options, providers=[provider])
    if provider not in session.get_providers():
        raise ExportError(f"{graph.name}: CUDA does not load; check the driver and cuDNN")
    name = f"ONNX Runtime {ort.__version__}, {device}"
    return name, lambda inputs: session.run(None, inputs)[0]


def openvino_engine(
    graph: Path, *, threads: int, floating: Literal["f32", "bf16"] | None = None
) -> tuple[str, Encode]:
    """The engine's name and its function, as ``open_engine`` gives them.

    What follows the pooling computes in f32, as in the service.

    Args:
        graph: ONNX or OpenVINO IR file.
        threads: number of cores.
        floating: number format of operators that are not int8. By default OpenVINO chooses: bf16
            if the processor has it.
    """
    import openvino as ov

    settings: dict[str, int | str | bool] = {"INFERENCE_NUM_THREADS": threads}
    if floating is not None:
        settings["INFERENCE_PRECISION_HINT"] = floating
    compiled = compile_parts(openvino_core().read_model(graph), settings)

    def encode(inputs: Inputs) -> np.ndarray:
        vectors = compiled[0](inputs)[0]
        for part in compiled[1:]:
            vectors = part([vectors])[0]
        return np.array(vectors)

    processor = openvino_core().get_property("CPU", "FULL_DEVICE_NAME").strip()
    return f"OpenVINO {ov.__version__.split('-')[0]}, {processor}", encode
