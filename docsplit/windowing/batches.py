"""Make matrices for a model from rows of token ids."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Wide = NDArray[np.int64]


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Positions of rows in batches, by rising length, so that there is little padding."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[number] > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def pad(
    rows: Sequence[NDArray[np.integer[Any]]], pad_token_id: int, width: int = 0
) -> tuple[Wide, Wide]:
    """Join rows of ids into one matrix and its mask: 1 for tokens, 0 for padding.

    Args:
        rows: ``[tokens]`` each.
        pad_token_id: fills the shorter rows.
        width: smallest number of columns.

    Returns:
        Two int64 matrices ``[rows, columns]``.
    """
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(max(width, lengths.max())) < lengths[:, None]
    ids = np.full(mask.shape, pad_token_id, dtype=np.int64)
    ids[mask] = np.concatenate(rows)
    return ids, mask.astype(np.int64)
