"""Choose the rows that are encoded together."""

from collections.abc import Sequence
from typing import Any

import torch

_CPU = 2_048
_OTHER = 8_192
_MOST = 65_536
# of the longest row of a chunk, and of a full chunk
_SIMILAR, _FILLED = 0.75, 0.25
# share of a device's memory for the activations of a chunk
_SHARE = 0.4
# Bytes that a token takes for each layer and dimension, forwards and backwards in bf16: a chunk of
# 65,536 tokens of MiniLM (6 layers of 384) took 21 GB of an H100.
_BYTES = 140


def plan_chunks(lengths: Sequence[int], budget: int, processes: int) -> list[list[int]]:
    """Group rows of similar length into chunks of at most ``budget`` padded tokens.

    A row that is shorter than three quarters of the longest of its chunk begins the next one, if
    the chunk is a quarter full. The number of chunks is a multiple of ``processes`` if there are
    enough rows; ``shared`` gives every process about as much work.

    Args:
        lengths: tokens of each row. A row longer than ``budget`` is a chunk by itself.
        budget: padded tokens of a chunk.
        processes: number of processes that share the chunks.

    Returns:
        Lists of row numbers, the largest first, each with its longest row first; every row is in
        one of them.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    total = sum(lengths)
    # every process needs so many chunks; they share the tokens equally
    rounds = max(1, -(-total // (budget * processes)))
    most = -(-total // (rounds * processes))
    chunks: list[list[int]] = []
    for row in order:
        if chunks and _joins(lengths[row], len(chunks[-1]), lengths[chunks[-1][0]], most):
            chunks[-1].append(row)
        else:
            chunks.append([row])

    def size(chunk: list[int]) -> int:
        return len(chunk) * lengths[chunk[0]]

    while len(chunks) % processes:
        largest = max((one for one in chunks if len(one) > 1), key=size, default=None)
        if largest is None:
            break
        half = len(largest) // 2
        chunks.append(largest[half:])
        del largest[half:]
    return sorted(chunks, key=size, reverse=True)


def shared(chunks: int, rank: int, processes: int) -> list[int]:
    """The chunks of process ``rank``, by their number: in every second round of turns the
    processes choose in reverse order."""
    order = [*range(processes), *reversed(range(processes))]
    return [i for i in range(chunks) if order[i % len(order)] == rank]


def _joins(length: int, rows: int, width: int, most: int) -> bool:
    if (rows + 1) * width > most:
        return False
    return length >= _SIMILAR * width or rows * width < _FILLED * most


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
