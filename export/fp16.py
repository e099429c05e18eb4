"""Fused fp16 form for CUDA, which CPU runtimes load too."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model

from export.graph import TAIL
from export.source import Source

FILE = "model.fp16.onnx"
FUSED = (
    "Attention",
    "BiasGelu",
    "EmbedLayerNormalization",
    "FastGelu",
    "LayerNormalization",
    "MultiHeadAttention",
    "SkipLayerNormalization",
)
_LOWEST = float(np.finfo(np.float16).min)
_MASKED = _LOWEST / 2


def write_fp16(source: Source, fp32: Path, folder: Path) -> dict[str, int]:
    """Fuse the graph ``fp32``, convert it to fp16 and write ``model.fp16.onnx`` into ``folder``.

    Inputs stay int64 and the output float32; pooling and normalisation are computed in fp32.

    Returns:
        How many of each fused kernel the graph holds.
    """
    config = source.encoder.config
    level = logging.getLogger().level
    with warnings.catch_warnings():
        # Weights beyond fp16's range are clamped with a warning; the parity gate judges them.
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
        _spare_the_masked(model.model.graph)
        tail = _tail(model.model.graph)
        model.convert_float_to_float16(keep_io_types=True, node_block_list=tail)
    logging.getLogger().setLevel(level)
    _drop_repeated_casts(model.model.graph)
    model.topological_sort(is_deterministic=True)
    _strip(model.model)
    data = model.model.SerializeToString(deterministic=True)
    (folder / FILE).write_bytes(data)
    found = Counter(n.op_type for n in model.model.graph.node)
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


def _strip(model: onnx.ModelProto) -> None:
    """Drop all that can differ between two exports of the same weights, or names their machine."""
    model.doc_string = ""
    del model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
