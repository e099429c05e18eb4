"""OpenVINO on the CPU: f32, bf16 where the processor has it, or the bundle's int8 graph."""

import threading
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from docsplit.bundles.arithmetic import Arithmetic, EngineName
from docsplit.bundles.openvino_core import openvino_core
from docsplit.bundles.openvino_graph import compile_parts
from service.embedding.engines.interface import EngineError

# As fast as 2,048 with one thread per stream (8,000 tokens are slower by 15-30 %), and requests in
# between wait a quarter of the time.
BATCH_TOKENS = 512


def floating(arithmetic: Arithmetic, capabilities: Collection[str]) -> Literal["bf16", "f32"]:
    """Precision of the operators that are not int8. Next to int8 products, bf16 costs no visible
    accuracy.

    Args:
        arithmetic: of the engine.
        capabilities: of the processor, in OpenVINO's names.
    """
    rest = arithmetic == "int8" and "BF16" in capabilities
    return "bf16" if arithmetic == "bf16" or rest else "f32"


class OpenVinoEngine:
    """A compiled graph with a stream for each worker thread.

    Args:
        graph: ONNX or OpenVINO IR file.
        arithmetic: f32, bf16 or int8. int8 is for a graph quantised to int8; its floating-point
            operators run in bf16 if the processor has it.
        threads: cores to compute on.
        streams: batches computed at once; they divide the threads.

    Raises:
        EngineError: openvino is not installed, or refuses the graph.
    """

    name: EngineName = "openvino"
    device = "CPU"

    def __init__(self, graph: Path, arithmetic: Arithmetic, threads: int, streams: int) -> None:
        try:
            core = openvino_core()
        except ImportError as error:
            raise EngineError("openvino is not installed: pip install 'docsplit[cpu]'") from error
        self.arithmetic = arithmetic
        self.streams = streams
        self.batch_tokens = BATCH_TOKENS
        try:
            precision = floating(arithmetic, core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
            self._models = compile_parts(
                graph,
                {
                    "INFERENCE_NUM_THREADS": threads,
                    "NUM_STREAMS": streams,
                    "INFERENCE_PRECISION_HINT": precision,
                    "ENABLE_CPU_PINNING": False,
                },
            )
        except RuntimeError as error:
            raise EngineError(f"{graph}: {error}") from error
        import openvino

        # pybind11 looks NumPy up at the first array. Two threads that do so at once deadlock: the
        # first waits for the interpreter lock of the second, and the second for the lookup.
        openvino.Tensor(np.zeros(1), shared_memory=True)
        self._local = threading.local()

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """See ``Engine.run``."""
        requests = getattr(self._local, "requests", None)
        if requests is None:
            requests = self._local.requests = [
                model.create_infer_request() for model in self._models
            ]
        given: object = {"input_ids": input_ids, "attention_mask": mask}
        for request in requests:
            outputs = request.infer(given, share_inputs=True, share_outputs=True)
            given = [outputs[0]]
        return np.array(outputs[0], dtype=np.float32)
