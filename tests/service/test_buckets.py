"""Rounding batches up to a few shapes for a device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from docsplit.engines.choice import Arithmetic, EngineName
from docsplit.engines.interface import EngineError
from docsplit.engines.onnx import PARTS, STEP, Buckets, reserve

WINDOW = 500
BUCKETS = Buckets(WINDOW, pad_token_id=7)


@given(rows=st.integers(1, 5_000), tokens=st.integers(1, WINDOW))
def test_a_bucket_is_little_larger_than_its_batch(rows: int, tokens: int) -> None:
    many, long = BUCKETS.shape(rows, tokens)
    assert rows <= many <= rows * (1 + 1 / PARTS)
    assert tokens <= long <= min(max(tokens + STEP - 1, tokens * (1 + 1 / PARTS)), WINDOW)
    assert BUCKETS.shape(many, long) == (many, long)


def test_there_are_few_buckets() -> None:
    shapes = {BUCKETS.shape(r, t) for t in range(1, WINDOW + 1) for r in range(1, 8192 // t + 1)}
    before = sum(8192 // t for t in range(1, WINDOW + 1))
    assert before > 50_000
    assert len(shapes) < 1_200


def test_a_window_beyond_the_longest_keeps_its_length() -> None:
    assert BUCKETS.shape(1, WINDOW + 1) == (1, WINDOW + 1)


def test_added_rows_are_masked_except_for_one_token() -> None:
    ids = np.arange(1, 17 * 21 + 1).reshape(17, 21)
    mask = (ids % 5 > 0).astype(np.int64)
    filled, masked = BUCKETS.fill(ids, mask)
    assert filled.shape == masked.shape == (18, 24)
    assert np.array_equal(filled[:17, :21], ids)
    assert np.array_equal(masked[:17, :21], mask)
    assert set(filled[17:].ravel()) | set(filled[:, 21:].ravel()) == {7}
    assert masked[:17, 21:].sum() == 0
    assert list(masked[17]) == [1, *(23 * [0])]


def test_a_batch_that_fits_does_not_change() -> None:
    ids = np.ones((4, 64), dtype=np.int64)
    assert BUCKETS.fill(ids, ids)[0] is ids


@pytest.mark.parametrize("budget", [64, 512, 32_768])
def test_no_batch_needs_more_than_the_largest(budget: int) -> None:
    largest = BUCKETS.largest(budget)
    tokens = max(rows * long for rows, long in largest)
    products = max(rows * long**2 for rows, long in largest)
    for long in range(STEP, WINDOW + 1, STEP):
        many, padded = BUCKETS.shape(max(1, budget // long), long)
        assert many * padded <= tokens
        assert many * padded**2 <= products
    # the control: they are the buckets of this budget, and not simply large
    assert tokens <= max(budget * (1 + 1 / PARTS) ** 2, WINDOW)
    assert products <= max(budget * WINDOW * (1 + 1 / PARTS) ** 2, WINDOW**2)


class Recorder:
    """An engine that records its batches."""

    name: EngineName = "onnx-cuda"
    arithmetic: Arithmetic = "fp16"
    device = "none"
    batch_tokens = 512
    streams = 2

    def __init__(self, most: int) -> None:
        self.most = most
        self.shapes: list[tuple[int, int]] = []

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        rows, tokens = input_ids.shape
        if rows * tokens > self.most:
            raise MemoryError("no room")
        assert mask.all()
        self.shapes.append((rows, tokens))
        return np.ones((rows, 2), dtype=np.float32)


def test_the_largest_buckets_run_in_every_stream() -> None:
    engine = Recorder(10**9)
    reserve(engine, BUCKETS, 4_096)
    assert sorted(engine.shapes) == sorted(2 * BUCKETS.largest(4_096))


def test_too_little_memory_gives_an_error_with_a_remedy() -> None:
    with pytest.raises(EngineError, match=r"2 batches of .* lower batch_tokens: no room"):
        reserve(Recorder(1_000), BUCKETS, 4_096)
