"""The service with an engine that takes no time, to measure the rest: ``served --instant``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docsplit.engines.onnx import OnnxCudaEngine
from service.__main__ import main
from service.server import encoder


class Instant:
    """Any unit vectors for any windows; otherwise like the engine on a GPU."""

    name, arithmetic, device = "onnx-cuda", "fp16", "none"
    batch_tokens, streams = OnnxCudaEngine.batch_tokens, OnnxCudaEngine.streams

    def __init__(self, dimensions: int) -> None:
        drawn = np.random.default_rng(0).standard_normal((4096, dimensions), dtype=np.float32)
        self._vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """See ``Engine.run``."""
        return self._vectors[: len(input_ids)].copy()


def _build(_choice: Any, bundle: Any, _threads: int, _streams: int) -> Instant:
    return Instant(bundle.manifest.dimensions)


if __name__ == "__main__":
    vars(encoder).update(build=_build, warm_up=lambda *_: None)
    sys.exit(main())
