"""Choose the rows that are encoded together."""

from collections.abc import Sequence
from typing import Any

import torch

_CPU = 2_048
_OTHER = 8_192
_MOST = 65_536
# share of a device's memory for the activations of a chunk
_SHARE = 0.4
# Bytes that a token takes for each layer and dimension, forwards and backwards in bf16: a chunk of
# 65,536 tokens of MiniLM (6 layers of 384) took 21 GB of an H100.
_BYTES = 140


def plan_chunks(lengths: Sequence[int], budget: int, processes: int) -> list[list[int]]:
    """Group rows of similar length into chunks of about ``budget`` tokens.

    The number of chunks is a multiple of ``processes`` if there are enough rows. The chunks have
    similar numbers of tokens, so processes that each take an equal number finish together.

    Args:
        lengths: tokens of each row.
        budget: tokens of a chunk.
        processes: number of processes that share the chunks.

    Returns:
        Lists of row numbers, the longest rows first; every row is in one of them.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    total = sum(lengths)
    count = max(1, -(-total // budget))
    count = -(-count // processes) * processes
    if count >= len(lengths):
        return [[row] for row in order]
    chunks: list[list[int]] = [[] for _ in range(count)]
    before = 0
    for row in order:
        # The middle of a row decides its chunk.
        middle = before + lengths[row] / 2
        chunks[min(count - 1, int(middle * count / total))].append(row)
        before += lengths[row]
    return [chunk for chunk in chunks if chunk]


def chunk_tokens(device: torch.device, config: Any) -> int:
    """Padded tokens of a chunk, by the device and the encoder.

    Depends on the whole memory of the device and not on what is free, so that a run gives the
    same results again.

    Args:
        device: where the encoder computes.
        config: the encoder's configuration.
    """
    if device.type == "cpu":
        return _CPU
    if device.type != "cuda":
        return _OTHER
    memory = torch.cuda.get_device_properties(device).total_memory
    layers = getattr(config, "num_hidden_layers", 1)
    return fitting(memory, layers * config.hidden_size)


def fitting(memory: int, units: int) -> int:
    """The largest power of two that fits, at least 1,024 and at most 65,536.

    Args:
        memory: bytes of the device.
        units: layers times dimensions of the encoder.
    """
    tokens = max(1_024, int(_SHARE * memory / (_BYTES * units)))
    return min(_MOST, 1 << (tokens.bit_length() - 1))
