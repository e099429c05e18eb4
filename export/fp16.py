"""The fused forms in fp16: for CUDA and CPUs, and packed, without padding, for CUDA only."""

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.transformers.convert_to_packing_mode import PackingMode
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.onnx_model import OnnxModel
from onnxruntime.transformers.optimizer import optimize_model

from docsplit.bundles.manifest import Ranges, WideNode
from export.errors import ExportError
from export.graph import INPUTS, OUTPUT, TAIL
from export.source import Checkpoint
from export.storage import copy, open_session, save

# Find the nodes that compute positions, such as buckets of relative positions.
#
# MPNet, T5 and DeBERTa put the distance of two tokens into a bucket by its logarithm (Raffel et
# al. 2020, arXiv:1910.10683, section 2.1). A logarithm rounded to fp16 falls into another
# bucket, and the attention reads the wrong bias.

_WHOLE = (
    onnx.TensorProto.INT8,
    onnx.TensorProto.INT16,
    onnx.TensorProto.INT32,
    onnx.TensorProto.INT64,
    onnx.TensorProto.UINT8,
    onnx.TensorProto.UINT16,
    onnx.TensorProto.UINT32,
    onnx.TensorProto.UINT64,
)
_REAL = (onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT)
_SIZES = ("Shape", "Size")
_PRODUCTS = ("Attention", "Conv", "Gemm", "MatMul", "MultiHeadAttention")


def position_nodes(graph: onnx.GraphProto) -> list[str]:
    """Names of the nodes that compute whole numbers from real ones, without a product of matrices.

    Those without a name get one.
    """
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output}
    found: set[int] = set()
    for place, node in enumerate(graph.node):
        if _casts(node, _WHOLE):
            sources = _sources(graph, makers, place)
            made = [graph.node[source] for source in sources]
            if any(_casts(one, _REAL) for one in made) and not any(
                one.op_type in _PRODUCTS for one in made
            ):
                found |= sources
    for place in found:
        graph.node[place].name = graph.node[place].name or f"{graph.node[place].op_type}_at_{place}"
    return [graph.node[place].name for place in sorted(found)]


def _casts(node: onnx.NodeProto, kinds: tuple[int, ...]) -> bool:
    return node.op_type == "Cast" and any(a.name == "to" and a.i in kinds for a in node.attribute)


def _sources(graph: onnx.GraphProto, makers: dict[str, int], place: int) -> set[int]:
    """The places of a node and of all nodes that its value depends on, as far as sizes."""
    found, left = set(), [place]
    while left:
        place = left.pop()
        if place not in found:
            found.add(place)
            if graph.node[place].op_type not in _SIZES:
                left += [makers[name] for name in graph.node[place].input if name in makers]
    return found


# Measure the values of a fused graph on real text, and find where fp16 would overflow.

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


# Fused fp16 form for CUDA, which CPU runtimes also load.

FILE = "model.fp16.onnx"
FUSED = (
    "Attention",
    "BiasGelu",
    "EmbedLayerNormalization",
    "FastGelu",
    "LayerNormalization",
    "MultiHeadAttention",
    "PackedAttention",
    "PackedMultiHeadAttention",
    "RemovePadding",
    "RestorePadding",
    "SkipLayerNormalization",
)
_LOWEST = float(np.finfo(np.float16).min)
_MASKED = _LOWEST / 2


@dataclass(frozen=True)
class Fused:
    """The fused graph in fp32.

    Attributes:
        model: the graph.
        exact: names of the nodes that compute in fp32 in any case: those of positions, and those
            of pooling and all nodes after it.
        ranges: its ranges on real inputs.
    """

    model: onnx.ModelProto
    exact: list[str]
    ranges: Ranges


def fuse(
    source: Checkpoint,
    fp32: Path,
    batches: Sequence[dict[str, np.ndarray]],
    *,
    fused: Path | None = None,
    threads: int = 1,
    advance: Callable[[float], None] = lambda share: None,
) -> Fused:
    """Fuse the graph ``fp32`` and measure its ranges.

    Args:
        source: the checkpoint; gives the number of heads.
        fp32: the unfused ONNX graph.
        batches: real inputs to measure ranges, int64 ``[batch, tokens]`` by name.
        fused: the graph, if something else has already fused it.
        threads: processor threads.
        advance: called with the share that is done.
    """
    model = _fused(source, fp32) if fused is None else onnx.load(fused)
    exact = [*position_nodes(model.graph), *_tail(model.graph)]
    ranges = measure_ranges(model, batches, outside=exact, threads=threads, advance=advance)
    return Fused(model, exact, ranges)


def _fused(source: Checkpoint, fp32: Path) -> onnx.ModelProto:
    config = source.encoder.config
    with quiet_optimizer():
        model: onnx.ModelProto = optimize_model(
            str(fp32),
            model_type="bert",
            num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size,
            optimization_options=FusionOptions("bert"),
            opt_level=0,
            use_gpu=False,
        ).model
    return model


def write_fp16(fused: Fused, folder: Path, kept: Collection[str] = ()) -> dict[str, int]:
    """Convert a fused graph to fp16 and write ``model.fp16.onnx`` into ``folder``.

    Inputs stay int64 and the output float32. Positions, pooling, normalisation, every node whose
    values come near the limit of fp16 (``export.fp16``) and the nodes ``kept`` compute in
    fp32.

    Returns:
        The number of each fused kernel in the graph.
    """
    model = OnnxModel(copy(fused.model))
    graph = model.model.graph
    # after the ranges, which recognise a mask by the checkpoint's value for minus infinity
    _halve_mask_values(graph)
    blocked = [*fused.exact, *fused.ranges.fp32_nodes, *kept]
    with quiet_optimizer(), warnings.catch_warnings():
        # The converter clamps the masks' value for minus infinity and warns.
        warnings.simplefilter("ignore")
        model.convert_float_to_float16(keep_io_types=True, node_block_list=blocked)
    _drop_repeated_casts(graph)
    if kept:
        _join_kept_nodes(graph)
    model.topological_sort(is_deterministic=True)
    strip(model.model)
    found = kernels(model.model)
    save(model.model, folder / FILE)
    return found


@contextmanager
def quiet_optimizer() -> Iterator[None]:
    """Silence ONNX Runtime's optimizer in this context. It sets the level of all logging and
    warns about each length that it cannot compare."""
    level, disabled = logging.getLogger().level, logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)
        logging.getLogger().setLevel(level)


def kernels_of(path: Path) -> dict[str, int]:
    """The number of each fused kernel in a file."""
    return kernels(onnx.load(path, load_external_data=False))


def kernels(model: onnx.ModelProto) -> dict[str, int]:
    """The number of each fused kernel in the graph."""
    found = Counter(n.op_type for n in model.graph.node)
    return {kernel: found[kernel] for kernel in FUSED if found[kernel]}


def _tail(graph: onnx.GraphProto) -> list[str]:
    """Names of the nodes of pooling and of all nodes after it.

    Fusions rename nodes, so a search by name would miss the activation of a Dense module.
    """
    names = {node.name for node in graph.node if node.name.startswith(TAIL)}
    while True:
        made = {name for node in graph.node if node.name in names for name in node.output}
        found = names | {n.name for n in graph.node if not made.isdisjoint(n.input)}
        if found == names:
            return sorted(names)
        names = found


def _halve_mask_values(graph: onnx.GraphProto) -> None:
    """Halve the value added to the scores of masked tokens, fp16's lowest number after conversion.

    Added to a negative score, the whole value would give -inf, and softmax over a row of -inf gives
    NaN. Local attention has such rows: padding that sees only padding.
    """
    for node in graph.node:
        if node.op_type != "Constant" or node.name.startswith(TAIL):
            continue
        for tensor in (a.t for a in node.attribute if a.t.data_type == onnx.TensorProto.FLOAT):
            values = onnx.numpy_helper.to_array(tensor)
            if values.size == 1 and values.min() <= _LOWEST:
                spared = np.full_like(values, _MASKED)
                tensor.CopyFrom(onnx.numpy_helper.from_array(spared, tensor.name))


def _drop_repeated_casts(graph: onnx.GraphProto) -> None:
    """Drop repeated casts. The converter casts a value, under one name, for each fp32 node."""
    made: set[str] = set()
    kept = []
    for node in graph.node:
        if not made.issuperset(node.output) or not node.output:
            kept.append(node)
        made.update(node.output)
    del graph.node[:]
    graph.node.extend(kept)


def _join_kept_nodes(graph: onnx.GraphProto) -> None:
    """Remove the casts to fp16 and back, which the converter puts between two nodes in fp32."""
    casts = {node.output[0]: node for node in graph.node if node.op_type == "Cast"}
    for node in graph.node:
        for place, name in enumerate(node.input):
            rounded = name.removesuffix("_cast_to_fp32")
            narrow = casts.get(rounded)
            if narrow is not None and narrow.input[0] == f"{rounded}_cast_to_fp16":
                node.input[place] = narrow.input[0] if name in casts and name != rounded else name
    for _ in ("back", "narrow"):
        read = {name for node in graph.node for name in node.input}
        read |= {output.name for output in graph.output}
        for node in [n for n in casts.values() if n.output[0] not in read]:
            graph.node.remove(casts.pop(node.output[0]))


def strip(model: onnx.ModelProto) -> None:
    """Drop everything that names the machine or can differ between exports of the same weights."""
    model.doc_string = ""
    del model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]


# Padding-free fp16 form for CUDA. Between the embeddings and the pooling, the tokens of all
# rows are concatenated, and attention stays within each row (Zeng et al. 2022,
# arXiv:2208.08124).

PACKED_FILE = "model.packed.onnx"
PACKED = ("PackedAttention", "PackedMultiHeadAttention")
# which input of each operator is the mask; its form shows how to find padding
_MASK_INPUT = {"Attention": 3, "MultiHeadAttention": 4}


def write_packed(fp16: Path, folder: Path) -> dict[str, int]:
    """Write ``model.packed.onnx`` into ``folder``: the graph ``fp16`` without its padding.

    Returns:
        The number of each fused kernel in the graph.

    Raises:
        ExportError: the graph has no attention that can be packed.
    """
    model = pack(onnx.load(str(fp16)))
    found = kernels(model)
    save(model, folder / PACKED_FILE)
    return found


def pack(fused: onnx.ModelProto) -> onnx.ModelProto:
    """Insert ``RemovePadding`` before the first attention, packed attention kernels, and
    ``RestorePadding`` after the last layer norm. Values of weights, types, inputs and outputs stay.

    Raises:
        ExportError: the graph has no attention that can be packed.
    """
    model = copy(fused)
    attention = [node for node in model.graph.node if node.op_type in _MASK_INPUT]
    _check_mask(model.graph, attention)
    wrapped = OnnxModel(model)
    with quiet_optimizer():
        PackingMode(wrapped).convert(use_symbolic_shape_infer=False)
    _use_flash_attention(wrapped.model.graph)
    wrapped.topological_sort(is_deterministic=True)
    packed: onnx.ModelProto = wrapped.model
    if all(imported.domain != _CONTRIB for imported in packed.opset_import):
        packed.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    strip(packed)
    validate(packed, len(attention))
    return packed


def validate(model: onnx.ModelProto, layers: int) -> None:
    """Check a packed graph as far as possible without a GPU.

    Args:
        model: the packed graph.
        layers: number of attention operators before packing.

    Raises:
        ExportError: a kernel is missing, or inputs and outputs are not those of a bundle's graph.
        onnx.checker.ValidationError: the graph is not valid ONNX.
    """
    found = kernels(model)
    if (
        sum(found.get(kernel, 0) for kernel in PACKED) != layers
        or any(found.get(kernel) != 1 for kernel in ("RemovePadding", "RestorePadding"))
        or any(found.get(kernel) for kernel in _MASK_INPUT)
    ):
        held = ", ".join(f"{count} {kernel}" for kernel, count in found.items())
        raise ExportError(f"packed: {layers} attention layers became {held or 'nothing'}")
    onnx.checker.check_model(model)
    types = {
        value.name: (value.type.tensor_type.elem_type, len(value.type.tensor_type.shape.dim))
        for value in (*model.graph.input, *model.graph.output)
    }
    expected = dict.fromkeys(INPUTS, (onnx.TensorProto.INT64, 2))
    if types != expected | {OUTPUT: (onnx.TensorProto.FLOAT, 2)}:
        raise ExportError(f"packed: inputs and outputs are {', '.join(types)}")


def _use_flash_attention(graph: onnx.GraphProto) -> None:
    """``PackedAttention`` → ``MatMul``, ``Reshape`` and ``PackedMultiHeadAttention``.

    Only the latter has flash attention, which it uses from 513 tokens on. For shorter texts it uses
    TensorRT's fused kernels if they exist (ONNX Runtime's packed_multihead_attention.cc).

    Its packed query is ``[tokens, heads, 3, size of a head]``. The function therefore reorders the
    weight's columns: ``[q of all heads, k of all, v of all]`` → ``[q, k, v]`` of each head.
    """
    weights = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        sizes = [a for a in node.attribute if a.name == "qkv_hidden_sizes"]
        if node.op_type != "PackedAttention" or sizes or node.input[1] not in weights:
            nodes.append(node)
            continue
        weight = weights[node.input[1]]
        values = numpy_helper.to_array(weight)
        heads = next(a.i for a in node.attribute if a.name == "num_heads")
        split = values.reshape(len(values), 3, heads, -1)
        by_head = np.ascontiguousarray(split.transpose(0, 2, 1, 3)).reshape(values.shape)
        weight.CopyFrom(numpy_helper.from_array(by_head, weight.name))
        shape = np.array([-1, heads, 3, split.shape[-1]], dtype=np.int64)
        graph.initializer.append(numpy_helper.from_array(shape, f"{node.name}_shape"))
        rows, query = f"{node.name}_rows", f"{node.name}_query"
        attention = helper.make_node(
            PACKED[1],
            [query, "", "", node.input[2], *node.input[3:5]],
            list(node.output),
            name=f"{node.name}_heads",
            domain=_CONTRIB,
        )
        attention.attribute.extend(a for a in node.attribute if a.name in ("num_heads", "scale"))
        nodes += [
            helper.make_node("MatMul", list(node.input[:2]), [rows], name=f"{node.name}_project"),
            helper.make_node("Reshape", [rows, f"{node.name}_shape"], [query], name=query),
            attention,
        ]
    del graph.node[:]
    graph.node.extend(nodes)


def _check_mask(graph: onnx.GraphProto, attention: list[onnx.NodeProto]) -> None:
    """``RemovePadding`` takes a mask as row lengths; it would silently misread other masks."""
    if not attention:
        raise ExportError("packed: the fused graph has no attention kernel to pack")
    made_by = {name: node.op_type for node in graph.node for name in node.output}
    for node in attention:
        place = _MASK_INPUT[node.op_type]
        mask = node.input[place] if len(node.input) > place else ""
        if made_by.get(mask) not in ("EmbedLayerNormalization", "ReduceSum"):
            raise ExportError(
                f"packed: {node.name} masks by {mask or 'nothing'}, not by the lengths of rows"
            )
