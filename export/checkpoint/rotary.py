"""Rotary positions as tables.

Without tables, a graph would compute angles in its own precision. In bf16, position 301 becomes
300 or 302. In fp16, angles beyond position 2,048 are wrong by up to a radian and more.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from export.errors import ExportError

# Scalings with frequencies that do not depend on the length of the text.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
# Services pad windows to multiples of a few tokens, perhaps beyond the longest window.
_ROUND = 64
_SHARED = "shared"


class RotationTables(nn.Module):
    """Cosines and sines of positions below ``tokens``, as ``rotary`` computes them in fp32.

    Args:
        rotary: the encoder's module.
        layer_types: kinds of layers with rotations of their own; empty if all layers share one.
        tokens: number of positions.
    """

    def __init__(self, rotary: nn.Module, layer_types: list[str], tokens: int) -> None:
        super().__init__()
        positions = torch.arange(tokens).unsqueeze(0)
        for kind in layer_types or [_SHARED]:
            found = rotary(torch.zeros(1), positions, *([kind] if layer_types else []))
            for name, table in zip(("cos", "sin"), found, strict=True):
                self.register_buffer(f"{kind}_{name}", table[0])

    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str = "shared"
    ) -> tuple[Tensor, Tensor]:
        """``position_ids`` int64 ``[1, tokens]`` → cosines and sines, float32
        ``[1, tokens, head]``."""
        cos, sin = (cast(Tensor, getattr(self, f"{layer_type}_{name}")) for name in ("cos", "sin"))
        return cos[position_ids], sin[position_ids]


def positions_of(tokens: int) -> int:
    """Positions of a table for windows of ``tokens``, and for their padding."""
    return -(-tokens // _ROUND) * _ROUND


def check_rotations(encoder: PreTrainedModel, source: str) -> None:
    """Refuse a scaling that a table cannot represent.

    Raises:
        ExportError: the angles of a position depend on the text's length.
    """
    if not hasattr(encoder, "rotary_emb"):
        return
    parameters: dict[str, Any] = cast(Any, encoder.config).rope_parameters
    kinds = parameters if "rope_type" not in parameters else {"all layers": parameters}
    for kind, settings in kinds.items():
        rope = settings["rope_type"]
        if rope not in ROPE_TYPES:
            raise ExportError(
                f"{source}: rope_type {rope} of {kind} is unsupported, because it changes with the "
                f"text's length; {', '.join(ROPE_TYPES)} are supported"
            )


@contextmanager
def tabled_rotations(encoder: PreTrainedModel, tokens: int) -> Iterator[None]:
    """In this context ``encoder`` reads its rotations from tables for windows of ``tokens``.

    Encoders without rotary positions do not change.
    """
    if not hasattr(encoder, "rotary_emb"):
        yield
        return
    rotary = cast(nn.Module, encoder.rotary_emb)
    by_kind = "layer_type" in inspect.signature(rotary.forward).parameters
    kinds = sorted(set(cast(Any, encoder.config).layer_types)) if by_kind else []
    with torch.no_grad():
        encoder.rotary_emb = RotationTables(rotary, kinds, positions_of(tokens))
    try:
        yield
    finally:
        encoder.rotary_emb = rotary
