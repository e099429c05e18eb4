"""Run a graph in real fp16 arithmetic.

CPU runtimes compute fp16 graphs in fp32, where sums do not overflow as on a GPU. ONNX's reference
evaluator rounds after every operator.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class SkipLayerNormalization(OpRun):
    """ONNX Runtime's fusion of a residual sum with the next layer norm."""

    op_domain = "com.microsoft"

    def _run(
        self,
        x: np.ndarray,
        skip: np.ndarray,
        gamma: np.ndarray,
        beta: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        epsilon: float = 1e-5,
    ) -> tuple[np.ndarray, ...]:
        total = x + skip if bias is None else x + skip + bias
        scaled = torch.nn.functional.layer_norm(
            torch.tensor(total).float(),
            (total.shape[-1],),
            torch.tensor(gamma).float(),
            None if beta is None else torch.tensor(beta).float(),
            epsilon,
        )
        return scaled.numpy().astype(x.dtype), x, x, total


class Gelu(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x: np.ndarray, approximate: str = "none") -> tuple[np.ndarray]:
        activated = torch.nn.functional.gelu(torch.tensor(x).float(), approximate=approximate)
        return (activated.numpy().astype(x.dtype),)


def run_in_fp16(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The vectors of a graph by ``write_fp16``. The encoder's attention must not be fused."""
    model = onnx.load(str(path))
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    for (
        node
    ) in model.graph.node:  # the evaluator confuses an omitted output with the omitted inputs
        for place, name in enumerate(node.output):
            node.output[place] = name or f"{node.name}/{place}"
    with np.errstate(all="ignore"):
        evaluator = ReferenceEvaluator(model, new_ops=[SkipLayerNormalization, Gelu])
        vectors, *_ = evaluator.run(None, inputs)
        return np.asarray(vectors)
