"""The gate's figures for vectors with known distances."""

from __future__ import annotations

import re

import numpy as np
import pytest

from export.errors import ExportError
from export.gate import measure
from export.thresholds import misses

N, D = 200, 64


@pytest.fixture
def reference() -> np.ndarray:
    vectors = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def turned(reference: np.ndarray, row: int, cosine: float) -> np.ndarray:
    """``reference`` with one row turned by the angle of ``cosine``."""
    vectors = reference.copy()
    away = reference[row - 1] - reference[row] * (reference[row - 1] @ reference[row])
    away /= np.linalg.norm(away)
    vectors[row] = cosine * reference[row] + np.sqrt(1 - cosine**2) * away
    return vectors


def test_equal_vectors_have_parity_one(reference: np.ndarray) -> None:
    parity = measure("fp16", reference, reference, engine="test")
    assert parity.cosine_mean == pytest.approx(1, abs=1e-6)
    assert parity.cosine_min == pytest.approx(1, abs=1e-6)
    assert parity.neighbour_agreement == 1
    assert (parity.paragraphs, parity.engine) == (N, "test")


def test_the_minimum_is_the_farthest_vector(reference: np.ndarray) -> None:
    parity = measure("int8", turned(reference, 7, 0.991), reference, engine="test")
    assert parity.cosine_min == pytest.approx(0.991, abs=1e-5)
    assert parity.cosine_mean == pytest.approx(1 - 0.009 / N, abs=1e-5)
    assert misses(parity) == []
    far = measure("int8", turned(reference, 7, 0.981), reference, engine="test")
    [missed] = misses(far)
    assert re.fullmatch(r"cosine_min 0\.98\d* is below 0\.985", missed)


def test_changed_neighbours_are_counted(reference: np.ndarray) -> None:
    # Pairs of almost equal vectors: each is the other's nearest.
    near = reference.copy()
    near[1::2] = near[::2] + 0.01 * reference[1::2]
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    swapped = near.copy()
    # 30 pairs move apart so little that the cosine hardly changes, but each vector gets another
    # nearest neighbour.
    for i in range(0, 60, 2):
        swapped[i] = near[i + 2]
    assert misses(measure("int8", swapped, near, engine="test"))[-1].startswith("neighbour_")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(reference: np.ndarray, bad: float) -> None:
    vectors = reference.copy()
    vectors[3, 3] = bad
    with pytest.raises(ExportError, match="the graph gives values that are not finite"):
        measure("fp16", vectors, reference, engine="test")
    with pytest.raises(ExportError, match="the source gives values that are not finite"):
        measure("fp16", reference, vectors, engine="test")


def test_vectors_without_unit_length_are_refused(reference: np.ndarray) -> None:
    with pytest.raises(ExportError, match="length"):
        measure("fp16", 2 * reference, reference, engine="test")


def test_another_shape_is_refused(reference: np.ndarray) -> None:
    with pytest.raises(ExportError, match="shape"):
        measure("fp16", reference[:, :-1], reference, engine="test")
