"""Run a bundle's graphs on the CPU, to measure them. The service has engines of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from export.bundle import PrecisionName
from export.graph import OUTPUT
from export.source import Source

Inputs = dict[str, np.ndarray]
Encode = Callable[[Inputs], np.ndarray]


def open_engine(precision: PrecisionName, graph: Path, *, threads: int) -> tuple[str, Encode]:
    """The engine's name and its function: inputs int64 ``[batch, tokens]`` → float32
    ``[batch, dimensions]``."""
    return (_openvino if precision == "int8" else _onnxruntime)(graph, threads)


def source_engine(source: Source) -> Encode:
    """The checkpoint itself, in fp32 by sentence-transformers: inputs int64 ``[batch, tokens]`` →
    unit vectors float32 ``[batch, dimensions]``."""
    import torch

    def encode(inputs: Inputs) -> np.ndarray:
        features = {name: torch.from_numpy(values) for name, values in inputs.items()}
        with torch.inference_mode():
            vectors = source.model(features)["sentence_embedding"].float()
        unit: np.ndarray = torch.nn.functional.normalize(vectors, dim=-1).numpy()
        return unit

    return encode


def _onnxruntime(graph: Path, threads: int) -> tuple[str, Encode]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return f"ONNX Runtime {ort.__version__}, CPU", lambda inputs: session.run([OUTPUT], inputs)[0]


def _openvino(graph: Path, threads: int) -> tuple[str, Encode]:
    import openvino as ov

    core = ov.Core()
    compiled = core.compile_model(graph, "CPU", {"INFERENCE_NUM_THREADS": threads})
    processor = core.get_property("CPU", "FULL_DEVICE_NAME").strip()
    version = ov.__version__.split("-")[0]
    return f"OpenVINO {version}, {processor}", lambda inputs: np.array(compiled(inputs)[OUTPUT])
