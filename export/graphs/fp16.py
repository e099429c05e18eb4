"""Fused fp16 form for CUDA, which CPU runtimes also load."""

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model

from bundles.manifest import Ranges
from export.checkpoint.source import Source
from export.graphs.graph import TAIL
from export.graphs.ranges import measure_ranges

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
class Written:
    """A written graph: the number of each fused kernel, and its ranges."""

    kernels: dict[str, int]
    ranges: Ranges


def write_fp16(
    source: Source, fp32: Path, folder: Path, batches: Sequence[dict[str, np.ndarray]]
) -> Written:
    """Fuse the graph ``fp32``, convert it to fp16 and write ``model.fp16.onnx`` into ``folder``.

    Inputs stay int64 and the output float32. Pooling, normalisation and every node whose values
    come near the limit of fp16 (``export.graphs.ranges``) compute in fp32.

    Args:
        source: the checkpoint; gives the number of heads.
        fp32: the unfused ONNX graph.
        folder: folder of the result.
        batches: real inputs to measure ranges, int64 ``[batch, tokens]`` by name.
    """
    config = source.encoder.config
    with quiet_optimizer(), warnings.catch_warnings():
        # The converter clamps the masks' value for minus infinity and warns.
        warnings.simplefilter("ignore")
        model = optimize_model(
            str(fp32),
            model_type="bert",
            num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size,
            optimization_options=FusionOptions("bert"),
            opt_level=0,
            use_gpu=False,
        )
        tail = _tail(model.model.graph)
        ranges = measure_ranges(model.model, batches, outside=tail)
        # after the ranges, which recognise a mask by the checkpoint's value for minus infinity
        _halve_mask_values(model.model.graph)
        kept = [*tail, *ranges.fp32_nodes]
        model.convert_float_to_float16(keep_io_types=True, node_block_list=kept)
    _drop_repeated_casts(model.model.graph)
    model.topological_sort(is_deterministic=True)
    strip(model.model)
    data = model.model.SerializeToString(deterministic=True)
    (folder / FILE).write_bytes(data)
    return Written(kernels(model.model), ranges)


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


def strip(model: onnx.ModelProto) -> None:
    """Drop everything that names the machine or can differ between exports of the same weights."""
    model.doc_string = ""
    del model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
