"""Fused fp16 form for CUDA, which CPU runtimes load too."""

from __future__ import annotations

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
    """A graph that was written: how many of each fused kernel it holds, and its ranges."""

    kernels: dict[str, int]
    ranges: Ranges


def write_fp16(
    source: Source, fp32: Path, folder: Path, batches: Sequence[dict[str, np.ndarray]]
) -> Written:
    """Fuse the graph ``fp32``, convert it to fp16 and write ``model.fp16.onnx`` into ``folder``.

    Inputs stay int64 and the output float32. Pooling and normalisation are computed in fp32, and
    so is every node whose values come near to what fp16 can hold (``export.graphs.ranges``).

    Args:
        source: says how many heads there are.
        fp32: the unfused ONNX graph.
        folder: where the graph goes.
        batches: real inputs to measure ranges on, int64 ``[batch, tokens]`` by name.
    """
    config = source.encoder.config
    with quiet_optimizer(), warnings.catch_warnings():
        # What stands for minus infinity in masks is clamped with a warning.
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
        # after the ranges, which know a mask by what the checkpoint wrote for minus infinity
        _spare_the_masked(model.model.graph)
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
    """Within, ONNX Runtime's optimizer is silent: it sets the level of all logging, and warns of
    each length that it cannot compare."""
    level, disabled = logging.getLogger().level, logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)
        logging.getLogger().setLevel(level)


def kernels(model: onnx.ModelProto) -> dict[str, int]:
    """How many of each fused kernel the graph holds."""
    found = Counter(n.op_type for n in model.graph.node)
    return {kernel: found[kernel] for kernel in FUSED if found[kernel]}


def _tail(graph: onnx.GraphProto) -> list[str]:
    """Names of the nodes of pooling and of all behind it.

    Fusions give nodes other names, so that the activation of a Dense module would be lost by name.
    """
    names = {node.name for node in graph.node if node.name.startswith(TAIL)}
    while True:
        made = {name for node in graph.node if node.name in names for name in node.output}
        found = names | {n.name for n in graph.node if not made.isdisjoint(n.input)}
        if found == names:
            return sorted(names)
        names = found


def _spare_the_masked(graph: onnx.GraphProto) -> None:
    """Halve what is added to the scores of masked tokens, fp16's lowest number after conversion.

    With a negative score it would be -inf, and softmax over a row of these is not a number. Local
    attention has such rows: padding that sees nothing but padding.
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
    """The converter casts a value once for every fp32 node that reads it, under the same name."""
    made: set[str] = set()
    kept = []
    for node in graph.node:
        if not made.issuperset(node.output) or not node.output:
            kept.append(node)
        made.update(node.output)
    del graph.node[:]
    graph.node.extend(kept)


def strip(model: onnx.ModelProto) -> None:
    """Drop all that can differ between two exports of the same weights, or names their machine."""
    model.doc_string = ""
    del model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
