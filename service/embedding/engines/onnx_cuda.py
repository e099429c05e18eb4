"""ONNX Runtime on CUDA: bound inputs and output, batches rounded up to buckets."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docsplit.bundles.arithmetic import Arithmetic, EngineName
from service.embedding.engines.buckets import Buckets
from service.embedding.engines.interface import EngineError
from service.embedding.engines.onnx_runtime import open_session

PROVIDER = "CUDAExecutionProvider"


class OnnxCudaEngine:
    """A session on one CUDA device.

    Args:
        session: from ``open_cuda``.
        buckets: shapes that batches are rounded up to.
        device_id: CUDA ordinal.
    """

    name: EngineName = "onnx-cuda"
    arithmetic: Arithmetic = "fp16"
    batch_tokens = 32_768
    # two, so that one batch is copied while the other is computed
    streams = 2

    def __init__(self, session: Any, buckets: Buckets, device_id: int = 0) -> None:
        self.device = f"CUDA:{device_id}"
        self._session = session
        self._output = session.get_outputs()[0].name
        self._buckets = buckets
        self._local = threading.local()

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """See ``Engine.run``."""
        binding = getattr(self._local, "binding", None)
        if binding is None:
            binding = self._local.binding = self._session.io_binding()
        ids, masked = self._buckets.fill(input_ids, mask)
        # bound from the host: copied to the device here, and not during the computation
        binding.bind_cpu_input("input_ids", np.ascontiguousarray(ids))
        binding.bind_cpu_input("attention_mask", np.ascontiguousarray(masked))
        # bind again each time, or the last batch's output is overwritten, whatever its shape
        binding.bind_output(self._output, "cpu")
        binding.synchronize_inputs()
        self._session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        [vectors] = binding.copy_outputs_to_cpu()
        return np.asarray(vectors, dtype=np.float32)[: len(input_ids)]


def open_cuda(graph: Path, device_id: int = 0) -> Any:
    """A session on CUDA.

    Args:
        graph: fused fp16 ONNX file, packed or not.
        device_id: CUDA ordinal.

    Raises:
        EngineError: onnxruntime-gpu is missing, refuses the graph, or fell back to the CPU.
    """
    options = {
        "device_id": device_id,
        "arena_extend_strategy": "kSameAsRequested",
        # nodes are fp32 for its range, which TF32 has too; TF32 rounds no more than fp16
        "use_tf32": 1,
    }
    session = open_session(graph, 1, [(PROVIDER, options)], preload=True)
    # onnxruntime-gpu silently falls back to the CPU if CUDA or cuDNN does not load
    if PROVIDER not in session.get_providers():
        raise EngineError(
            "CUDA was asked for, but onnxruntime runs on "
            f"{', '.join(session.get_providers())}: install 'docsplit[gpu]' without "
            "'docsplit[cpu]', and check that the driver, CUDA 13 and cuDNN 9 load"
        )
    return session
