"""Measure what the rounding of each value to fp16 costs, one value at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.checks.engines import Inputs
from export.checks.parity import distance
from export.graphs.ranges import FP16_MAX, constants_of, float_values, session
from export.repair.choice import Candidate
from export.storage import copy

# They move values without computing, so a value is rounded once on its way through them.
_MOVES = ("Expand", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")
_FLAGS = "rounded"

Advance = Callable[[float], None]


@dataclass(frozen=True)
class _Edge:
    value: str
    consumer: int
    place: int
    operators: dict[str, str]


def measure_roundings(
    fused: onnx.ModelProto,
    inputs: Sequence[Inputs],
    *,
    outside: Collection[str],
    threads: int,
    advance: Advance = lambda share: None,
) -> list[Candidate]:
    """Round one value at a time between two operators, and compare the vectors.

    A single graph does all measurements: an input says which values it rounds.

    Args:
        fused: the fused fp32 graph, whose nodes all have names.
        inputs: some texts, int64 ``[batch, tokens]`` by name.
        outside: names of nodes that stay fp32 in any case.
        threads: processor threads.
        advance: called with the share that is done.
    """
    edges = list(_edges(fused, outside, threads))
    runner = session(_probe(fused, edges), threads)

    def vectors(flags: np.ndarray) -> np.ndarray:
        found = [runner.run(None, {**batch, _FLAGS: flags})[0] for batch in inputs]
        return np.concatenate(found).astype(np.float64)

    exact = vectors(np.zeros(len(edges), bool))
    found = []
    for number, edge in enumerate(edges):
        flags = np.zeros(len(edges), bool)
        flags[number] = True
        error = distance(vectors(flags), exact)
        # not a number: the rounding overflows
        error = max(error, 0.0) if np.isfinite(error) else 1.0
        found.append(Candidate(edge.operators, float(error)))
        advance((number + 1) / len(edges))
    return found


def _edges(fused: onnx.ModelProto, outside: Collection[str], threads: int) -> Iterator[_Edge]:
    floats = set(float_values(fused, threads)) - constants_of(fused.graph).keys()
    producers = {name: node for node in fused.graph.node for name in node.output}

    def path(value: str) -> dict[str, str]:
        """The operator that computes ``value``, and those that move it."""
        node = producers[value]
        here = {node.name: node.op_type}
        if node.op_type in _MOVES and node.input[0] in producers:
            return path(node.input[0]) | here
        return here

    for number, node in enumerate(fused.graph.node):
        if node.op_type in _MOVES:
            continue
        for place, value in enumerate(node.input):
            if value in floats and value in producers:
                operators = path(value) | {node.name: node.op_type}
                inside = {k: v for k, v in operators.items() if k not in outside}
                if next(iter(operators)) not in outside:
                    yield _Edge(value, number, place, inside)


def _probe(fused: onnx.ModelProto, edges: Sequence[_Edge]) -> onnx.ModelProto:
    """The graph with a switch in front of each edge, in an order that ONNX accepts."""
    probe = copy(fused)
    graph = probe.graph
    graph.input.append(helper.make_tensor_value_info(_FLAGS, TensorProto.BOOL, [len(edges)]))
    for name, bound in (("probe_low", -FP16_MAX), ("probe_high", FP16_MAX)):
        graph.initializer.append(numpy_helper.from_array(np.array(bound, np.float32), name))
    added: dict[int, list[onnx.NodeProto]] = {}
    made: set[str] = set()
    for number, edge in enumerate(edges):
        before = added.setdefault(edge.consumer, [])
        rounded = f"{edge.value}/probe_rounded"
        if rounded not in made:
            made.add(rounded)
            steps = [f"{edge.value}/probe_{step}" for step in ("bounded", "half")]
            before += [
                helper.make_node("Clip", [edge.value, "probe_low", "probe_high"], steps[:1]),
                helper.make_node("Cast", steps[:1], steps[1:], to=TensorProto.FLOAT16),
                helper.make_node("Cast", steps[1:], [rounded], to=TensorProto.FLOAT),
            ]
        place, flag, read = (f"probe_{kind}_{number}" for kind in ("place", "flag", "read"))
        graph.initializer.append(numpy_helper.from_array(np.array(number), place))
        before += [
            helper.make_node("Gather", [_FLAGS, place], [flag]),
            helper.make_node("Where", [flag, rounded, edge.value], [read]),
        ]
        graph.node[edge.consumer].input[edge.place] = read
    nodes = [n for i, node in enumerate(fused.graph.node) for n in (*added.get(i, ()), i)]
    ordered = [graph.node[n] if isinstance(n, int) else n for n in nodes]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(copies)
    return probe


def multiplications(graph: onnx.GraphProto) -> dict[str, int]:
    """For each token, by the name of a node that multiplies with a weight."""
    sizes = {t.name: int(np.prod(t.dims)) for t in graph.initializer if len(t.dims) >= 2}
    return {
        node.name: max(sizes[name] for name in node.input if name in sizes)
        for node in graph.node
        if node.op_type in ("Attention", "Gemm", "MatMul")
        and not sizes.keys().isdisjoint(node.input)
    }
