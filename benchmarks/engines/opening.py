"""Open the service's engines on a graph, to time them without HTTP."""

from __future__ import annotations

from pathlib import Path

from docsplit.engines.choice import Arithmetic, EngineName
from docsplit.engines.interface import Engine
from docsplit.engines.onnx import OnnxCpuEngine
from docsplit.engines.openvino_cpu import OpenVinoEngine
from export.engines import Encode


def open_encode(name: EngineName, graph: Path, arithmetic: Arithmetic, threads: int) -> Encode:
    """One batch at a time on all threads: inputs int64 ``[batch, tokens]`` → float32
    ``[batch, dimensions]``."""
    kind = OpenVinoEngine if name == "openvino" else OnnxCpuEngine
    engine: Engine = kind(graph, arithmetic, threads, 1)
    return lambda inputs: engine.run(inputs["input_ids"], inputs["attention_mask"])
