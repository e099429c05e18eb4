"""Dropout on a CPU from 16-bit random numbers: the same distribution in less time.

torch draws a random number for each element, one after the other: a third of a training step in
bf16 (docs/explanation/experiments/speed.md, "Dropout on a CPU").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

# name of ``attention`` for transformers
ATTENTION = "quick_dropout"
# dropout of attention weights in the configuration of a model
SHARES = ("attention_probs_dropout_prob", "attention_dropout")
_VALUES = 1 << 16
# numbers of 16 bits in one of 64
_EACH = 4


class Dropout(nn.Dropout):
    """``nn.Dropout`` that is quicker on a CPU."""

    def forward(self, values: Tensor) -> Tensor:
        """In training, leave out elements."""
        if self.training and _quick(values, self.p):
            return dropout(values, self.p)
        return super().forward(values)


def install(backbone: PreTrainedModel) -> None:
    """Let a model use this dropout, of states and of attention weights."""
    for module in backbone.modules():
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p).train(child.training))
    config = backbone.config
    if config._attn_implementation == "sdpa" and any(getattr(config, name, 0) for name in SHARES):
        AttentionInterface.register(ATTENTION, attention)
        AttentionMaskInterface.register(ATTENTION, sdpa_mask)
        backbone.set_attn_implementation(ATTENTION)


def dropout(values: Tensor, share: float) -> Tensor:
    """Set a share of the elements to 0, and scale the others by 1 / (1 - share).

    Args:
        values: float, of any shape, on a CPU.
        share: above 0 and below 1; it counts as the nearest multiple of 2⁻¹⁶.
    """
    made: Tensor = _Dropout.apply(values, share)  # type: ignore[no-untyped-call]
    return made


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **named: Any,
) -> tuple[Tensor, None]:
    """transformers' ``sdpa``; with dropout on a CPU, for which torch has no fused kernel, our own.

    Args:
        module: the layer.
        query: ``[batch, heads, tokens, width of a head]``.
        key: the same.
        value: the same.
        attention_mask: true for the tokens that count, or a float to add to each product;
            ``[batch, 1 or heads, tokens, tokens]``.
        dropout: share of the attention weights to leave out.
        scaling: of the products.
        **named: what else transformers passes.

    Returns:
        ``[batch, tokens, heads, width of a head]``.
    """
    causal = named.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    plain = query.shape == key.shape == value.shape and named.get("position_bias") is None
    if not plain or not _quick(query, dropout) or (causal and attention_mask is None):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **named
        )
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(kind), key.to(kind), value.to(kind)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast("cpu", enabled=False):
        given = (query * scaling, key, value, attention_mask, dropout)
        states: Tensor = _Attention.apply(*given)  # type: ignore[no-untyped-call]
    return states.transpose(1, 2).contiguous(), None


def _quick(values: Tensor, share: float) -> bool:
    return values.device.type == "cpu" and 0 < share < 1


def _drawn(values: Tensor, share: float) -> tuple[Tensor, float]:
    """Int16: 1 for each element that stays and 0 for the others; and the scale of the former."""
    count = math.prod(values.shape)
    words = torch.empty(-(-count // _EACH), dtype=torch.int64).random_(-(1 << 63), None)
    numbers = words.view(torch.int16)[:count].view(values.shape)
    dropped = min(max(round(share * _VALUES), 1), _VALUES - 1)
    # a comparison, and products with its booleans, take four times as long
    last = dropped - _VALUES // 2 - 1
    return numbers.clamp_(last, last + 1).sub_(last), _VALUES / (_VALUES - dropped)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, share: float) -> Tensor:
        kept, ctx.scale = _drawn(values, share)
        ctx.save_for_backward(kept)
        return kept.to(values.dtype).mul_(values).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        [kept] = ctx.saved_tensors
        return kept.to(gradient.dtype).mul_(gradient).mul_(ctx.scale), None


class _Attention(torch.autograd.Function):
    """Products and softmax in float32, weights in the values' type, as in torch's fused kernel.

    New memory costs as much time as a product, so most results take the place of others.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, share: float
    ) -> Tensor:
        scores = query.float() @ key.float().transpose(2, 3)
        if mask is not None and mask.dtype == torch.bool:
            scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
        elif mask is not None:
            scores.add_(mask)
        weights = scores.softmax(-1).to(value.dtype)
        kept, ctx.scale = _drawn(weights, share)
        ctx.save_for_backward(query, key, value, weights, kept)
        return (kept.to(weights.dtype).mul_(weights) @ value).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, weights, kept = ctx.saved_tensors
        gradient, kept = gradient * ctx.scale, kept.to(weights.dtype)
        changes = (gradient @ value.transpose(2, 3)).mul_(kept)
        of_value = kept.mul_(weights).transpose(2, 3) @ gradient
        # the derivative of a softmax, in place
        torch.ops.aten._softmax_backward_data.out(
            changes, weights, -1, weights.dtype, grad_input=changes
        )
        return changes @ key, changes.transpose(2, 3) @ query, of_value, None, None
