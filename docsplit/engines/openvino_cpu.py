"""OpenVINO on the CPU: f32, bf16 where the processor has it, or the bundle's int8 graph."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from docsplit.engines.choice import Arithmetic, EngineName
from docsplit.engines.interface import EngineError
from docsplit.engines.telemetry import block_telemetry

if TYPE_CHECKING:
    import openvino

_lock = threading.Lock()


def openvino_core() -> openvino.Core:
    """The only ``Core`` of the process; it is never released.

    The CPU plugin of each ``Core`` gives the thread that loads it another stack for signal
    handlers. If two plugins are released in the order in which they were loaded, the second one
    restores the stack of the first, which is freed memory. The next signal then ends the process
    by SIGSEGV.

    Raises:
        ImportError: openvino is not installed.
    """
    with _lock:
        return _core()


@cache
def _core() -> openvino.Core:
    block_telemetry()
    import openvino

    return openvino.Core()


_PRECISION = "INFERENCE_PRECISION_HINT"
_ROWS = "token_vectors"
# of open engines, by file: those of one bundle share them
_open: WeakValueDictionary[Path, TokenVectors] = WeakValueDictionary()


def compile_parts(
    model: openvino.Model, settings: Mapping[str, int | str | bool]
) -> list[openvino.CompiledModel]:
    """Compile a graph for the CPU, cut behind the pooling unless all of it computes in f32.

    Args:
        model: it is taken apart.
        settings: of OpenVINO; without a precision OpenVINO chooses one.

    Returns:
        Models to run one after the other.
    """
    core = openvino_core()
    first, *rest = [model] if settings.get(_PRECISION) == "f32" else behind_pooling(model)
    exact = {**settings, _PRECISION: "f32"}
    return [
        core.compile_model(first, "CPU", dict(settings)),
        *(core.compile_model(part, "CPU", exact) for part in rest),
    ]


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """The vectors of a vocabulary, as the graph has them.

    Attributes:
        values: fp16 or int8, ``[vocabulary, dimensions]``.
        scales: of int8 values, f32, ``[vocabulary, 1]``; otherwise empty.
    """

    values: NDArray[Any]
    scales: NDArray[np.float32]

    def rows(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """The vectors of ids, fp16 or f32, with one more axis than ``ids``."""
        found: NDArray[Any] = self.values[ids]
        return found * self.scales[ids] if self.scales.size else found


def take_token_vectors(model: openvino.Model) -> TokenVectors | None:
    """Take the vectors of the vocabulary out of a graph; their rows become an input.

    OpenVINO widens them to f32 for each compiled graph. For 250,000 tokens of 384 dimensions that
    is 384 MB, and a service has two such graphs.

    Args:
        model: changed if it has such vectors.

    Returns:
        The vectors; None if the graph has none in fp16 or int8.
    """
    from openvino import opset13

    for operator in model.get_ordered_ops():
        if operator.get_type_name() != "Gather":
            continue
        table, ids = (operator.input_value(place).get_node() for place in (0, 1))
        if ids.get_type_name() == "Convert":
            ids = ids.input_value(0).get_node()
        found = _token_vectors(table) if ids.get_friendly_name() == "input_ids" else None
        if found is not None:
            output = operator.output(0)
            rows = opset13.parameter(output.get_partial_shape(), output.get_element_type(), _ROWS)
            rows.output(0).set_names({_ROWS})
            for reader in output.get_target_inputs():
                reader.replace_source_output(rows.output(0))
            model.add_parameters([rows])
            return found
    return None


def _token_vectors(table: openvino.Node) -> TokenVectors | None:
    from openvino import Type

    if table.get_type_name() == "Constant" and table.get_output_element_type(0) == Type.f16:
        return TokenVectors(np.array(table.data), np.empty(0, np.float32))
    if table.get_type_name() != "Multiply":
        return None
    values, scales = (table.input_value(place).get_node() for place in (0, 1))
    if values.get_type_name() == "Convert":
        values = values.input_value(0).get_node()
    if {values.get_type_name(), scales.get_type_name()} != {"Constant"}:
        return None
    if values.get_output_element_type(0) != Type.i8 or scales.data.shape != (len(values.data), 1):
        return None
    return TokenVectors(np.array(values.data), np.array(scales.data))


def _shared(graph: Path, vectors: TokenVectors | None) -> TokenVectors | None:
    """The vectors of an open engine of the same file, unless the file has changed since."""
    if vectors is None:
        return None
    held = _open.get(graph)
    if (
        held is None
        or not np.array_equal(held.values, vectors.values)
        or not np.array_equal(held.scales, vectors.scales)
    ):
        _open[graph] = held = vectors
    return held


def behind_pooling(model: openvino.Model) -> list[openvino.Model]:
    """The graph up to the input of the first matrix product on pooled vectors, and the rest.

    With bf16 as inference precision OpenVINO keeps f32 only after the last matrix product. If an
    encoder has one behind its pooling, such as a Dense module, then the pooling would run in bf16
    too, and the result of the product would be rounded to bf16. Rounded vectors depend on how many
    other texts are in the batch.

    Args:
        model: a graph whose output has the shape ``[batch, dimensions]``; it is taken apart.

    Returns:
        Graphs to run one after the other; ``[model]`` if it has no such product.
    """
    import openvino
    from openvino import opset13

    behind = _behind_tokens(model)
    products = [
        operator.input_value(0)
        for operator in model.get_ordered_ops()
        if operator.get_type_name() == "MatMul" and operator.get_name() in behind
    ]
    if not products:
        return [model]
    pooled = products[0]
    vectors = opset13.parameter(pooled.get_partial_shape(), pooled.get_element_type())
    for reader in pooled.get_target_inputs():
        reader.replace_source_output(vectors.output(0))
    rest = openvino.Model(model.get_results(), [vectors], "behind the pooling")
    return [openvino.Model([opset13.result(pooled)], model.get_parameters(), "encoder"), rest]


def _behind_tokens(model: openvino.Model) -> set[str]:
    """Names of the operators between the last one with a value for each token and the output."""
    found: set[str] = set()
    waiting = [result.input_value(0) for result in model.get_results()]
    while waiting:
        output = waiting.pop()
        operator, rank = output.get_node(), output.get_partial_shape().rank
        if rank.is_dynamic or rank.get_length() > 2 or operator.get_name() in found:
            continue
        found.add(operator.get_name())
        waiting += operator.input_values()
    return found


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
            model = core.read_model(graph)
            self._vectors = _shared(graph, take_token_vectors(model))
            self._models = compile_parts(
                model,
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
        given: Any = {"input_ids": input_ids, "attention_mask": mask}
        if self._vectors is not None:
            given[_ROWS] = self._vectors.rows(input_ids)
        for request in requests:
            outputs = request.infer(given, share_inputs=True, share_outputs=True)
            given = [outputs[0]]
        return np.array(outputs[0], dtype=np.float32)
