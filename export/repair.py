"""Keep operators in floating point whose rounding costs a graph too much."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
import openvino as ov
from onnx import TensorProto, helper, numpy_helper
from openvino import opset13 as ops

from docsplit.bundles.manifest import KeptOperator, PrecisionName, Ranges, Repair
from docsplit.engines.openvino_cpu import openvino_core
from export import fp16, int8
from export.engines import Inputs
from export.errors import ExportError
from export.fp16 import FP16_MAX, constants_of, float_values, session
from export.gate import Judge, Measured, distance
from export.progress import Report
from export.storage import copy
from export.thresholds import AnyParity, error_of, misses, refusal, remaining

# Choose the operators to keep, by what their rounding costs and what keeping them costs.

# A rounding with a smaller share of the error comes last, because avoiding it hardly helps.
_LEAST = 0.01
# A target with less reserve often misses by a little, because errors add only roughly.
_RESERVE = 0.8


@dataclass(frozen=True)
class Candidate:
    """A rounding that disappears if all ``operators`` stay in floating point.

    Attributes:
        operators: names of the operators, with their kinds.
        error: measured rise of the distance to the exact outputs by this rounding.
    """

    operators: Mapping[str, str]
    error: float


class Choice:
    """The operators that stay in floating point.

    Args:
        candidates: every rounding that can be avoided.
        multiplications: for each token, by the name of an operator with weights.
    """

    def __init__(self, candidates: Sequence[Candidate], multiplications: Mapping[str, int]) -> None:
        self._candidates = candidates
        self._multiplications = multiplications
        self.kept: dict[str, KeptOperator] = {}

    @property
    def multiplications(self) -> float:
        """Share of the multiplications with weights that the kept operators do."""
        total = sum(self._multiplications.values())
        return self._cost(self.kept) / total if total else 0.0

    @property
    def error(self) -> float:
        """Error that keeping operators can still remove."""
        return sum(c.error for c in self._left())

    def reduce(self, share: float) -> bool:
        """Keep more operators until ``share`` of the present error remains.

        Operators without weights come first, because they cost least; then those that remove most
        error for each multiplication.

        Returns:
            Whether there was an operator to keep.
        """
        left = self._left()
        target = _RESERVE * share * self.error
        grown = False
        while left and sum(c.error for c in left) > target:
            least = _LEAST * self.error
            best = min(left, key=lambda c: (c.error < least, *self._rank(c)))
            for name, kernel in best.operators.items():
                if name not in self.kept:
                    self.kept[name] = KeptOperator(kernel=kernel, error=float(f"{best.error:.3g}"))
            grown = True
            left = self._left()
        return grown

    def _left(self) -> list[Candidate]:
        return [c for c in self._candidates if not c.operators.keys() <= self.kept.keys()]

    def _rank(self, candidate: Candidate) -> tuple[float, float]:
        cost = self._cost(candidate.operators.keys() - self.kept.keys())
        return cost / max(candidate.error, 1e-12), -candidate.error

    def _cost(self, names: Collection[str]) -> int:
        return sum(self._multiplications.get(name, 0) for name in names)


# Measure what the rounding of each value to fp16 costs, one value at a time.

# They move values without computing, so a value is rounded once on its way through them.
_ONNX_MOVES = (
    "Expand",
    "Identity",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
)
_ROUNDED = "rounded"

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
    runner = session(_rounding_probe(fused, edges), threads)

    def vectors(flags: np.ndarray) -> np.ndarray:
        found = [runner.run(None, {**batch, _ROUNDED: flags})[0] for batch in inputs]
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
        if node.op_type in _ONNX_MOVES and node.input[0] in producers:
            return path(node.input[0]) | here
        return here

    for number, node in enumerate(fused.graph.node):
        if node.op_type in _ONNX_MOVES:
            continue
        for place, value in enumerate(node.input):
            if value in floats and value in producers:
                operators = path(value) | {node.name: node.op_type}
                inside = {k: v for k, v in operators.items() if k not in outside}
                if next(iter(operators)) not in outside:
                    yield _Edge(value, number, place, inside)


def _rounding_probe(fused: onnx.ModelProto, edges: Sequence[_Edge]) -> onnx.ModelProto:
    """The graph with a switch in front of each edge, in an order that ONNX accepts."""
    probe = copy(fused)
    graph = probe.graph
    graph.input.append(helper.make_tensor_value_info(_ROUNDED, TensorProto.BOOL, [len(edges)]))
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
            helper.make_node("Gather", [_ROUNDED, place], [flag]),
            helper.make_node("Where", [flag, rounded, edge.value], [read]),
        ]
        graph.node[edge.consumer].input[edge.place] = read
    nodes = [n for i, node in enumerate(fused.graph.node) for n in (*added.get(i, ()), i)]
    ordered = [graph.node[n] if isinstance(n, int) else n for n in nodes]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(copies)
    return probe


def graph_multiplications(graph: onnx.GraphProto) -> dict[str, int]:
    """For each token, by the name of a node that multiplies with a weight."""
    sizes = {t.name: int(np.prod(t.dims)) for t in graph.initializer if len(t.dims) >= 2}
    return {
        node.name: max(sizes[name] for name in node.input if name in sizes)
        for node in graph.node
        if node.op_type in ("Attention", "Gemm", "MatMul")
        and not sizes.keys().isdisjoint(node.input)
    }


# Measure what each quantiser of an int8 graph costs, and remove quantisers.

_QUANTISED = "quantised"
_OPENVINO_MOVES = (
    "Broadcast",
    "Reshape",
    "Split",
    "Squeeze",
    "StridedSlice",
    "Transpose",
    "Unsqueeze",
    "VariadicSplit",
)
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
        if node.get_type_name() in _OPENVINO_MOVES:
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
    compiled = openvino_core().compile_model(_quantiser_probe(quantised, found), "CPU", settings)

    def vectors(flags: np.ndarray) -> np.ndarray:
        rows = [np.array(compiled({**batch, _QUANTISED: flags})[0]) for batch in inputs]
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


def _quantiser_probe(quantised: ov.Model, found: Sequence[Group]) -> ov.Model:
    probe = quantised.clone()
    flags = ops.parameter([len(found)], np.bool_, name=_QUANTISED)
    flags.output(0).set_names({_QUANTISED})
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


def model_multiplications(model: ov.Model) -> dict[str, int]:
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


# The numeric forms whose operators can stay in floating point one by one.

_STEP = "measuring what each operator's rounding costs the {} graph"


class Form(Protocol):
    """One numeric form of a graph."""

    @property
    def name(self) -> PrecisionName: ...

    @property
    def graph(self) -> Path:
        """The written graph."""
        ...

    def write(self, kept: Collection[str] = ()) -> dict[str, int]:
        """Write the graph with the operators ``kept`` in floating point; returns the number of
        each kernel."""
        ...

    def choice(self, inputs: Sequence[Inputs]) -> Choice:
        """Measure on ``inputs`` what the rounding of each operator costs."""
        ...


class Half:
    """fp16: a graph in which each operator computes in fp16 or in fp32."""

    name: PrecisionName = "fp16"

    def __init__(self, fused: fp16.Fused, folder: Path, threads: int, report: Report) -> None:
        self._fused, self._folder, self._threads, self._report = fused, folder, threads, report
        self.graph = folder / fp16.FILE

    @property
    def ranges(self) -> Ranges:
        """The ranges of the graph's values."""
        return self._fused.ranges

    def write(self, kept: Collection[str] = ()) -> dict[str, int]:
        self._report("writing the fp16 graph")
        return fp16.write_fp16(self._fused, self._folder, kept)

    def choice(self, inputs: Sequence[Inputs]) -> Choice:
        step, fused = _STEP.format(self.name), self._fused
        for place, node in enumerate(fused.model.graph.node):
            node.name = node.name or f"{node.op_type}_at_{place}"
        found = measure_roundings(
            fused.model,
            inputs,
            outside={*fused.exact, *fused.ranges.fp32_nodes},
            threads=self._threads,
            advance=lambda share: self._report(step, share),
        )
        return Choice(found, graph_multiplications(fused.model.graph))


class Integer:
    """int8: a graph in which each product reads quantised activations or not."""

    name: PrecisionName = "int8"

    def __init__(self, quantised: ov.Model, folder: Path, threads: int, report: Report) -> None:
        self._quantised, self._folder = quantised, folder
        self._threads, self._report = threads, report
        self.graph = folder / int8.FILE

    @cached_property
    def _groups(self) -> list[Group]:
        return groups(self._quantised)

    def write(self, kept: Collection[str] = ()) -> dict[str, int]:
        self._report("writing the int8 graph")
        model = without(self._quantised, self._groups, kept)
        return int8.write_int8(model, self._folder)

    def choice(self, inputs: Sequence[Inputs]) -> Choice:
        step = _STEP.format(self.name)
        found = measure_quantisers(
            self._quantised,
            self._groups,
            inputs,
            threads=self._threads,
            advance=lambda share: self._report(step, share),
        )
        return Choice(found, model_multiplications(self._quantised))


# Write a graph, and keep operators in floating point until it holds its thresholds.

# A graph that keeps more of its multiplications is no longer the form that the user asked for.
MOST = 0.5
_ROUNDS = 8
# Below this share of the graph's error, avoiding every rounding of values would not repair it.
_EXPLAINED = 0.02


@dataclass(frozen=True)
class Made:
    """A written graph with its measurements.

    Attributes:
        kernels: number of each fused or quantised operator.
        parity: the figures, tasks included.
        repair: what stays in floating point; None if nothing had to.
        accepted: thresholds that it misses, which the user accepts.
    """

    kernels: dict[str, int]
    parity: AnyParity
    repair: Repair | None
    accepted: list[str]


def make(form: Form, gate: Judge, *, accept: bool, note: Callable[[str], None]) -> Made:
    """Write and measure a graph; keep operators in floating point if it misses a threshold.

    Args:
        form: the form to write.
        gate: measures it.
        accept: whether the user accepts a graph that still misses a threshold.
        note: called with what misses, what was kept and what that costs.

    Raises:
        ExportError: the graph is not finite, or misses a threshold that the user does not accept.
    """
    kernels, repair = form.write(), None
    first = found = _measure(form, gate)
    why_not = f"{_ROUNDS} attempts to repair it were not enough"
    if misses(first.parity):
        note(f"{refusal(form.name, first.parity)}; finding the operators that cost most")
        choice = form.choice(gate.sample(first))
        error = error_of(first.parity)
        for _ in range(_ROUNDS):
            if choice.error < _EXPLAINED * error:
                why_not = (
                    f"the rounding of values that is left explains only {choice.error:.1g} of its "
                    f"mean error of {error:.1g}; the rest has another cause"
                )
                break
            grown = choice.reduce(remaining(found.parity))
            if not grown or choice.multiplications > MOST:
                why_not = _reason(choice, grown)
                break
            kernels = form.write(choice.kept)
            found = _measure(form, gate)
            repair = _repair(first, choice)
            if not misses(found.parity):
                break
    if misses(found.parity):
        if not accept:
            raise ExportError(
                f"{refusal(form.name, found.parity)}; {why_not}; --accept {form.name} writes it"
            )
        found = _with_tasks(form, gate, found)
    if repair is not None:
        note(_cost(form.name, repair, first, found))
    return Made(kernels, found.parity, repair, misses(found.parity))


def _measure(form: Form, gate: Judge) -> Measured:
    """Measure the tasks only if the vectors hold their thresholds, because tasks are slower."""
    found = gate.parity(form.name, form.graph)
    return found if misses(found.parity) else _with_tasks(form, gate, found)


def _with_tasks(form: Form, gate: Judge, found: Measured) -> Measured:
    return replace(found, parity=gate.with_losses(form.name, form.graph, found.parity))


def _reason(choice: Choice, grown: bool) -> str:
    if grown:
        return (
            f"to hold them, more than {MOST:.0%} of its multiplications would have to stay in "
            "floating point"
        )
    return f"with {len(choice.kept)} operators in floating point, no rounding is left to avoid"


def _repair(first: Measured, choice: Choice) -> Repair:
    names = first.parity.thresholds
    return Repair(
        before={name: float(getattr(first.parity, name)) for name in names},
        kept=dict(choice.kept),
        multiplications=round(choice.multiplications, 4),
    )


def _cost(name: PrecisionName, repair: Repair, first: Measured, last: Measured) -> str:
    """What repair costs in speed, as measured on this machine."""
    slower = last.seconds / first.seconds - 1
    return (
        f"{name}: {len(repair.kept)} operators stay in floating point, "
        f"{repair.multiplications:.1%} of the multiplications; encoding the paragraphs took "
        f"{last.seconds:.1f} s, {first.seconds:.1f} s before ({slower:+.0%})"
    )
