"""A bundle whose engine starts at once and computes nearly nothing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from docsplit.bundles import format as bundle
from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.bundles.manifest import WindowWeights

_ROWS = 1024


def seal_light(
    folder: Path, dimensions: int = 64, zeros: Sequence[int] = (), **settings: WindowWeights
) -> None:
    """Make a bundle that gives texts of the same words the same vector.

    The vector of a text is the mean of random vectors, one for each of its tokens. The tokenizer is
    that of the default bundle.

    Args:
        folder: of the bundle.
        dimensions: of its vectors.
        zeros: ids of tokens that add nothing to a vector.
        settings: further fields of the manifest.
    """
    folder.mkdir()
    shutil.copy(DEFAULT_BUNDLE / "tokenizer.json", folder)
    onnx.save(_graph(dimensions, zeros), str(folder / "model.onnx"))
    held = bundle.load(DEFAULT_BUNDLE, verify=False).manifest
    fields = dict(held)
    for computed in ("files", "revision"):
        del fields[computed]
    precision = held.precisions["fp16"].model_copy(update={"file": "model.onnx", "ranges": None})
    changed = {"name": "light", "dimensions": dimensions, "precisions": {"fp16": precision}}
    bundle.seal(folder, **fields | changed | settings)


def _graph(dimensions: int, zeros: Sequence[int]) -> onnx.ModelProto:
    drawn = np.random.default_rng(0).standard_normal((_ROWS, dimensions)).astype(np.float32)
    drawn[list(zeros)] = 0
    constants = {
        "table": drawn,
        "rows": np.array(_ROWS),
        "words": np.array([1]),
        "last": np.array([2]),
    }
    nodes = [
        helper.make_node("Mod", ["input_ids", "rows"], ["row"]),
        helper.make_node("Gather", ["table", "row"], ["every"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["weights"]),
        helper.make_node("Mul", ["every", "weights"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "words"], ["sum"], keepdims=0),
        helper.make_node("LpNormalization", ["sum"], ["embedding"], axis=1, p=2),
    ]
    given = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask")
    ]
    made = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", dimensions])
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "light", given, [made], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
