"""Measure the values of a fused graph on real text, and find where fp16 would overflow."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from docsplit.bundles.manifest import Ranges, WideNode
from export.storage import copy, open_session

FP16_MAX = 65_504.0
# Share of fp16's range that a value may reach on the passages; the rest is for other texts.
SHARE = 0.25
# Masks use this value for minus infinity. fp16's lowest value has the same effect.
STAND_IN = 1e30
_CONTRIB = "com.microsoft"


def measure_ranges(
    model: onnx.ModelProto,
    batches: Sequence[dict[str, np.ndarray]],
    *,
    outside: Collection[str],
    threads: int = 1,
    advance: Callable[[float], None] = lambda share: None,
) -> Ranges:
    """Run the fused fp32 graph on the CPU and find the nodes whose values exceed fp16.

    A node is too wide if a value that it reads, holds or writes exceeds ``SHARE`` of ``FP16_MAX``,
    or if a constant that it reads exceeds ``FP16_MAX``. An ``Attention`` holds its projection and
    its scores. The bound of the scores is scale · max ‖q‖ · max ‖k‖ (Cauchy and Schwarz), which
    needs no product of tokens with tokens.

    Args:
        model: the fused fp32 graph; it does not change.
        batches: inputs by name, int64 ``[batch, tokens]``. Padding counts, because the graph
            computes it.
        outside: names of nodes that stay fp32 in any case; the result leaves them out.
        threads: processor threads.
        advance: called with the share that is done.
    """
    constants = constants_of(model.graph)
    probe, probes = _probe(model, constants, threads)
    reached = _run(probe, list(probes.values()), batches, threads, advance)
    measured = {name: reached[output] for name, output in probes.items()}
    largest, at = 0.0, ""
    wide: dict[str, WideNode] = {}
    for place, node in enumerate(model.graph.node):
        if node.name in outside or node.op_type == "Constant":
            continue
        values = [*node.input, *node.output, _inside(node)]
        moving = max((measured.get(v, 0.0) for v in values), default=0.0)
        fixed = max((constants.get(v, 0.0) for v in node.input), default=0.0)
        if moving > largest:
            largest, at = moving, node.name or node.output[0]
        if moving > SHARE * FP16_MAX or fixed > FP16_MAX:
            node.name = node.name or f"{node.op_type}_at_{place}"
            by_weight = fixed > FP16_MAX
            wide[node.name] = WideNode(
                kernel=node.op_type,
                magnitude=_rounded(fixed if by_weight else moving),
                of="weight" if by_weight else "activation",
            )
    return Ranges(
        passages=sum(len(next(iter(batch.values()))) for batch in batches),
        limit=SHARE * FP16_MAX,
        largest=_rounded(largest),
        largest_at=at,
        fp32_nodes=wide,
    )


def constants_of(graph: onnx.GraphProto) -> dict[str, float]:
    """Largest magnitude of every floating-point constant."""
    found = {}
    tensors = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant":
            tensors += [(node.output[0], a.t) for a in node.attribute if a.name == "value"]
    for name, tensor in tensors:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = np.abs(numpy_helper.to_array(tensor))
            found[name] = float(values[values < STAND_IN].max(initial=0.0))
    return found


def _probe(
    model: onnx.ModelProto, constants: dict[str, float], threads: int
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """A graph that outputs only the largest magnitude of each value, and the outputs' names.

    No value has to be kept. The names are listed by the value's name.
    """
    probe = copy(model)
    graph = probe.graph
    if all(imported.domain != _CONTRIB for imported in probe.opset_import):
        probe.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    inside = {_inside(node): list(_attention(node, graph)) for node in graph.node}
    values = {name for name in float_values(probe, threads) if name not in constants}
    del graph.output[:]
    for name, value in (("probe_stand_in", STAND_IN), ("probe_zero", 0)):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    probes: dict[str, str] = {}
    # right behind what they read, so that no value has to be kept
    for node in [graph.node.pop(0) for _ in range(len(graph.node))]:
        graph.node.append(node)
        for name in [name for name in node.output if name in values]:
            probes[name] = _largest(graph, [name], f"probe_{len(probes)}")
        if nodes := inside[_inside(node)]:
            graph.node.extend(nodes)
            held = [f"{_inside(node)}_projected", f"{_inside(node)}_scores"]
            probes[_inside(node)] = _largest(graph, held, f"probe_{len(probes)}")
    return probe, probes


def float_values(model: onnx.ModelProto, threads: int) -> list[str]:
    """Names of all fp32 values that nodes write. The runtime gives their types."""
    exposed = copy(model)
    del exposed.graph.output[:]
    names = dict.fromkeys(name for node in model.graph.node for name in node.output if name)
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    outputs = session(exposed, threads).get_outputs()
    return [output.name for output in outputs if output.type == "tensor(float)"]


def _largest(graph: onnx.GraphProto, values: list[str], name: str) -> str:
    """Append nodes that compute the largest magnitude of ``values``, and add it to the outputs."""
    each = []
    for number, value in enumerate(values):
        made = [f"{name}_{number}_{step}" for step in ("abs", "real", "kept", "max")]
        graph.node.extend(
            [
                helper.make_node("Abs", [value], [made[0]]),
                helper.make_node("Less", [made[0], "probe_stand_in"], [made[1]]),
                helper.make_node("Where", [made[1], made[0], "probe_zero"], [made[2]]),
                helper.make_node("ReduceMax", [made[2]], [made[3]], keepdims=0),
            ]
        )
        each.append(made[3])
    graph.node.append(helper.make_node("Max", each, [name]))
    graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, []))
    return name


def _inside(node: onnx.NodeProto) -> str:
    return f"{node.output[0]}/inside"


def _attention(node: onnx.NodeProto, graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Nodes for the projection of a fused ``Attention`` and for the bound of its scores."""
    if node.op_type != "Attention" or node.domain != _CONTRIB:
        return
    heads = next(a.i for a in node.attribute if a.name == "num_heads")
    sizes = next((list(a.ints) for a in node.attribute if a.name == "qkv_hidden_sizes"), [])
    if not sizes:
        weight = next(t for t in graph.initializer if t.name == node.input[1])
        sizes = [weight.dims[1] // 3] * 3
    scale = next((a.f for a in node.attribute if a.name == "scale"), 0.0)
    scale = scale or (sizes[0] // heads) ** -0.5
    base = _inside(node)
    for name, value in (
        ("sizes", np.array(sizes, dtype=np.int64)),
        ("shape", np.array([0, 0, heads, -1], dtype=np.int64)),
        ("scale", np.array(scale, np.float32)),
    ):
        graph.initializer.append(numpy_helper.from_array(value, f"{base}_{name}"))
    bias = node.input[2]
    yield helper.make_node("MatMul", list(node.input[:2]), [f"{base}_product"])
    yield helper.make_node("Add", [f"{base}_product", bias], [f"{base}_projected"])
    parts = [f"{base}_{part}" for part in "qkv"]
    yield helper.make_node("Split", [f"{base}_projected", f"{base}_sizes"], parts, axis=2)
    for part in parts[:2]:
        yield helper.make_node("Reshape", [part, f"{base}_shape"], [f"{part}_heads"])
        # [batch, tokens, heads] → the longest of every head
        yield helper.make_node("ReduceL2", [f"{part}_heads"], [f"{part}_l2"], axes=[3], keepdims=0)
        yield helper.make_node("ReduceMax", [f"{part}_l2"], [f"{part}_max"], axes=[1], keepdims=0)
    yield helper.make_node("Mul", [f"{part}_max" for part in parts[:2]], [f"{base}_bound"])
    yield helper.make_node("Mul", [f"{base}_bound", f"{base}_scale"], [f"{base}_scores"])


def _run(
    probe: onnx.ModelProto,
    names: list[str],
    batches: Sequence[dict[str, np.ndarray]],
    threads: int,
    advance: Callable[[float], None],
) -> dict[str, float]:
    runner = session(probe, threads)
    reached = dict.fromkeys(names, 0.0)
    for number, batch in enumerate(batches, start=1):
        for name, value in zip(names, runner.run(names, batch), strict=True):
            reached[name] = max(reached[name], float(value))
        advance(number / len(batches))
    return reached


def session(model: onnx.ModelProto, threads: int) -> Any:
    """A session that runs the graph as it is written, on the CPU."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # in the order of the nodes; the usual order computes all values before their probes
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    return open_session(model, options)


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
