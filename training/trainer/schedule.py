"""The learning rate and the optimiser."""

from collections.abc import Iterable

import torch
from torch import nn


def learning_rate(step: int, total: int, peak: float, warmup: float) -> float:
    """Linear rise during the first share ``warmup`` of the steps, then linear descent to zero.

    Args:
        step: number of the next step, from 0.
        total: steps of the run.
        peak: highest learning rate.
        warmup: share of the steps.
    """
    climb = round(warmup * total)
    if step < climb:
        return peak * (step + 1) / climb
    return peak * max(0.0, (total - step) / max(1, total - climb))


def adamw(modules: Iterable[nn.Module], weight_decay: float) -> torch.optim.AdamW:
    """AdamW whose weight decay excludes biases and layer norms."""
    parameters = {id(p): p for m in modules for p in m.parameters() if p.requires_grad}
    matrices = [p for p in parameters.values() if p.dim() > 1]
    others = [p for p in parameters.values() if p.dim() <= 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=0.0,
        fused=True,
    )
