"""Measure what each quantiser of an int8 graph costs, and remove quantisers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from docsplit.engines.openvino_cpu import openvino_core
from export.checks.engines import Inputs
from export.checks.parity import distance
from export.repair.choice import Candidate

_FLAGS = "quantised"
_MOVES = (
    "Broadcast",
    "Reshape",
    "Split",
    "Squeeze",
    "StridedSlice",
    "Transpose",
    "Unsqueeze",
    "VariadicSplit",
)

Advance = Callable[[float], None]
Group = tuple[frozenset[str], dict[str, str]]


def groups(model: ov.Model) -> list[Group]:
    """Quantisers that belong together: their names, and the kinds of their readers by name.

    A product computes in int8 only if both of its sides are quantised.
    """
    found: list[Group] = []
    for op in model.get_ordered_ops():
        if op.get_type_name() != "FakeQuantize":
            continue
        names, readers = frozenset([op.get_friendly_name()]), _readers(op)
        apart = []
        for others, shared in found:
            if shared.keys().isdisjoint(readers):
                apart.append((others, shared))
            else:
                names, readers = names | others, shared | readers
        found = [*apart, (names, readers)]
    return found


def _readers(op: ov.Node) -> dict[str, str]:
    """The operators that compute with a quantiser's value."""
    found: dict[str, str] = {}
    for target in op.output(0).get_target_inputs() if op.get_output_size() == 1 else ():
        node = target.get_node()
        if node.get_type_name() in _MOVES:
            found |= _readers(node)
        elif node.get_type_name() != "ShapeOf":
            found[node.get_friendly_name()] = node.get_type_name()
    return found


def measure_quantisers(
    quantised: ov.Model,
    found: Sequence[Group],
    inputs: Sequence[Inputs],
    *,
    threads: int,
    advance: Advance = lambda share: None,
) -> list[Candidate]:
    """Leave out one group of quantisers at a time, and compare the vectors.

    A single graph does all measurements: an input says which quantisers it applies. It computes in
    fp32, so that the result does not depend on the processor's number formats.

    Args:
        quantised: the graph with its quantisers.
        found: its groups.
        inputs: some texts, int64 ``[batch, tokens]`` by name.
        threads: processor threads.
        advance: called with the share that is done.
    """
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino_core().compile_model(_probe(quantised, found), "CPU", settings)

    def vectors(flags: np.ndarray) -> np.ndarray:
        rows = [np.array(compiled({**batch, _FLAGS: flags})[0]) for batch in inputs]
        return np.concatenate(rows).astype(np.float64)

    exact = vectors(np.zeros(len(found), bool))
    every = np.ones(len(found), bool)
    total = distance(vectors(every), exact)
    candidates = []
    for number, (_, readers) in enumerate(found):
        flags = every.copy()
        flags[number] = False
        error = total - distance(vectors(flags), exact)
        candidates.append(Candidate(readers, max(error, 0.0)))
        advance((number + 1) / len(found))
    return candidates


def _probe(quantised: ov.Model, found: Sequence[Group]) -> ov.Model:
    probe = quantised.clone()
    flags = ops.parameter([len(found)], np.bool_, name=_FLAGS)
    flags.output(0).set_names({_FLAGS})
    numbers = {name: number for number, (names, _) in enumerate(found) for name in names}
    for op in probe.get_ordered_ops():
        number = numbers.get(op.get_friendly_name())
        if number is None:
            continue
        readers = op.output(0).get_target_inputs()
        flag = ops.gather(flags, ops.constant(np.int64(number)), ops.constant(np.int64(0)))
        chosen = ops.select(flag, op.output(0), op.input_value(0))
        for reader in readers:
            reader.replace_source_output(chosen.output(0))
    probe.add_parameters([flags])
    return probe


def without(quantised: ov.Model, found: Sequence[Group], kept: Collection[str]) -> ov.Model:
    """A copy in which the operators ``kept`` read values and weights that are not quantised."""
    model = quantised.clone()
    removed = {name for names, readers in found for name in names if readers.keys() <= set(kept)}
    for op in model.get_ordered_ops():
        if op.get_friendly_name() in removed:
            for reader in op.output(0).get_target_inputs():
                reader.replace_source_output(op.input_value(0))
    return model


def multiplications(model: ov.Model) -> dict[str, int]:
    """For each token, by the name of an operator that multiplies with a weight."""
    found = {}
    for op in model.get_ops():
        if op.get_type_name() == "MatMul":
            weight = op.input_value(1).get_node()
            if weight.get_type_name() == "FakeQuantize":
                weight = weight.input_value(0).get_node()
            if weight.get_type_name() == "Constant":
                found[op.get_friendly_name()] = int(np.prod(list(op.input_value(1).get_shape())))
    return found
