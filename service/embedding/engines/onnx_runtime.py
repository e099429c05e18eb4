"""ONNX Runtime on the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docsplit.bundles.arithmetic import Arithmetic, EngineName
from docsplit.bundles.telemetry import block_telemetry
from service.embedding.engines.interface import EngineError

_ERRORS = 3


def open_session(graph: Path, threads: int, providers: list[Any], *, preload: bool = False) -> Any:
    """An ``InferenceSession`` that logs only errors.

    Args:
        graph: ONNX file.
        threads: threads of one operator, on the CPU.
        providers: in ONNX Runtime's form, best first.
        preload: load CUDA and cuDNN first.

    Raises:
        EngineError: onnxruntime is not installed, or refuses the graph.
    """
    block_telemetry()
    try:
        import onnxruntime
    except ImportError as error:
        raise EngineError(
            "onnxruntime is not installed: pip install 'docsplit[cpu]' or 'docsplit[gpu]'"
        ) from error
    if preload:
        # the loader does not search the folders of CUDA and cuDNN in the nvidia-* packages
        onnxruntime.preload_dlls()
    # ONNX Runtime 1.31 warns that CUDA is not a plug-in each time a session opens on it
    onnxruntime.set_default_logger_severity(_ERRORS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = _ERRORS
    try:
        return onnxruntime.InferenceSession(str(graph), options, providers=providers)
    except Exception as error:
        raise EngineError(f"{graph}: {error}") from error


class OnnxCpuEngine:
    """One session for all streams; they share the weights.

    Args:
        graph: ONNX file.
        arithmetic: precision of the computation (fp16 weights are widened to f32).
        threads: cores to compute on, divided among the streams.
        streams: batches computed at once.

    Raises:
        EngineError: onnxruntime is not installed, or refuses the graph.
    """

    name: EngineName = "onnx-cpu"
    device = "CPU"
    batch_tokens = 512

    def __init__(self, graph: Path, arithmetic: Arithmetic, threads: int, streams: int) -> None:
        self.arithmetic = arithmetic
        self.streams = streams
        self._session = open_session(graph, max(1, threads // streams), ["CPUExecutionProvider"])

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """See ``Engine.run``."""
        feed = {"input_ids": input_ids, "attention_mask": mask}
        return np.asarray(self._session.run(None, feed)[0], dtype=np.float32)
