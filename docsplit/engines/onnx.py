"""ONNX Runtime, on the CPU and on CUDA.

On CUDA, inputs and output are bound, and batches are rounded up to a few shapes: a device's arena
keeps the memory that it once took, and pieces of ever new sizes leave unusable gaps. With a few
sizes, the largest first, pieces find their old places.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docsplit.engines.choice import Arithmetic, EngineName
from docsplit.engines.interface import Engine, EngineError
from docsplit.engines.telemetry import block_telemetry

# Sizes between two powers of two: rounding adds at most an eighth, on average half of that.
PARTS = 8
# Numbers of tokens are multiples of it: tensor cores work best so, and the queue rounds alike.
STEP = 8

Ids = NDArray[np.int64]
Shape = tuple[int, int]


class Buckets:
    """Rounds batches of ``[rows, tokens]`` up.

    Args:
        max_tokens: longest window; no batch exceeds it, because positions end there.
        pad_token_id: fills the rest.
    """

    def __init__(self, max_tokens: int, pad_token_id: int) -> None:
        self._max_tokens = max_tokens
        self._pad = pad_token_id

    def shape(self, rows: int, tokens: int) -> Shape:
        """The shape that ``[rows, tokens]`` is rounded up to."""
        return _up(rows, 1), max(tokens, min(_up(tokens, STEP), self._max_tokens))

    def fill(self, input_ids: Ids, mask: Ids) -> tuple[Ids, Ids]:
        """The batch in its bucket, the rest masked; the first rows of the output are the results.

        A row without tokens has no mean, so each added row has one token.

        Args:
            input_ids: ``[rows, tokens]``.
            mask: 1 for tokens, 0 for padding, ``[rows, tokens]``.
        """
        rows, tokens = input_ids.shape
        shape = self.shape(rows, tokens)
        if shape == (rows, tokens):
            return input_ids, mask
        rest = (0, shape[0] - rows), (0, shape[1] - tokens)
        filled = np.pad(input_ids, rest, constant_values=self._pad)
        masked = np.pad(mask, rest)
        masked[rows:, 0] = 1
        return filled, masked

    def largest(self, batch_tokens: int) -> list[Shape]:
        """The buckets that need most memory: by tokens, and by products of a row's tokens.

        Args:
            batch_tokens: most padded tokens in a batch, in rows of multiples of ``STEP``; a longer
                window gets its own batch.
        """
        rounded = (min(n, self._max_tokens) for n in range(STEP, self._max_tokens + STEP, STEP))
        found = [self.shape(max(1, batch_tokens // tokens), tokens) for tokens in rounded]
        by_tokens = max(found, key=lambda shape: shape[0] * shape[1])
        by_products = max(found, key=lambda shape: shape[0] * shape[1] ** 2)
        return list(dict.fromkeys((by_tokens, by_products)))


def reserve(engine: Engine, buckets: Buckets, batch_tokens: int) -> None:
    """Run the largest buckets in all streams at once, so that the arena gets its size early.

    Args:
        engine: engine on the device.
        buckets: the buckets of the engine.
        batch_tokens: most padded tokens in a batch.

    Raises:
        EngineError: it fails, most likely for lack of memory.
    """
    with ThreadPoolExecutor(engine.streams) as pool:
        for rows, tokens in buckets.largest(batch_tokens):
            ids = np.zeros((rows, tokens), dtype=np.int64)
            running = [pool.submit(engine.run, ids, ids + 1) for _ in range(engine.streams)]
            try:
                for one in running:
                    one.result()
            except Exception as error:
                raise EngineError(
                    f"{engine.name}: {engine.streams} batches of {rows} x {tokens} tokens at once "
                    f"fail, lower batch_tokens: {error}"
                ) from error


def _up(size: int, step: int) -> int:
    """The next multiple of ``step``, or of a part of an octave if that is wider."""
    octave = 1 << (size - 1).bit_length()
    width = max(step, octave // (2 * PARTS))
    return -(-size // width) * width


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
