"""Rotary positions as tables.

Without tables, a graph would compute angles in its own precision. In bf16, position 301 becomes
300 or 302. In fp16, angles beyond position 2,048 are wrong by up to a radian and more.
"""

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


class RotationTables(nn.Module):
    """Cosines and sines of positions below ``tokens``, as ``rotary`` computes them in fp32."""

    def __init__(self, rotary: nn.Module, layer_types: list[str], tokens: int) -> None:
        super().__init__()
        positions = torch.arange(tokens).unsqueeze(0)
        for kind in layer_types:
            for name, table in zip(
                ("cos", "sin"), rotary(torch.zeros(1), positions, kind), strict=True
            ):
                self.register_buffer(f"{kind}_{name}", table[0])

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str) -> tuple[Tensor, Tensor]:
        """``position_ids`` int64 ``[1, tokens]`` → cosines and sines, float32
        ``[1, tokens, head]``."""
        cos, sin = (cast(Tensor, getattr(self, f"{layer_type}_{name}")) for name in ("cos", "sin"))
        return cos[position_ids], sin[position_ids]


def check_rotations(encoder: PreTrainedModel, source: str) -> None:
    """Refuse a scaling that a table cannot represent.

    Raises:
        ExportError: the angles of a position depend on the text's length.
    """
    if encoder.config.model_type != "modernbert":
        return
    parameters: dict[str, dict[str, Any]] = cast(Any, encoder.config).rope_parameters
    for kind, settings in parameters.items():
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
    if encoder.config.model_type != "modernbert":
        yield
        return
    rotary = cast(nn.Module, encoder.rotary_emb)
    kinds = sorted(set(cast(Any, encoder.config).layer_types))
    with torch.no_grad():
        encoder.rotary_emb = RotationTables(rotary, kinds, -(-tokens // _ROUND) * _ROUND)
    try:
        yield
    finally:
        encoder.rotary_emb = rotary
