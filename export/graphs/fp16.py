"""Fused fp16 form for CUDA, which CPU runtimes also load."""

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.onnx_model import OnnxModel
from onnxruntime.transformers.optimizer import optimize_model

from docsplit.bundles.manifest import Ranges
from export.checkpoint.source import Checkpoint
from export.graphs.graph import TAIL
from export.graphs.positions import position_nodes
from export.graphs.ranges import measure_ranges
from export.storage import copy, save

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
    values come near the limit of fp16 (``export.graphs.ranges``) and the nodes ``kept`` compute in
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
