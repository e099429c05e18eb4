"""Compare measures of labels and of vectors with independent computations."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.spatial.distance import pdist
from sklearn.metrics.pairwise import cosine_similarity

from training.evaluation.metrics import (
    accuracy,
    alignment,
    best_threshold,
    macro_f1,
    mean_cosine,
    partition_isotropy,
    right_sides,
    row_cosines,
    two_fold,
    uniformity,
)


def unit(rows: int, width: int, seed: int = 0, shift: float = 0.0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((rows, width)) + shift
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), dtype=np.float32)


def test_accuracy_and_macro_f1_by_hand() -> None:
    truth = np.asarray([0, 0, 0, 1, 1, 2])
    guess = np.asarray([0, 0, 1, 1, 0, 0])
    assert accuracy(truth, guess) == pytest.approx(3 / 6)
    # class 0: precision 2/4, recall 2/3; class 1: 1/2, 1/2; class 2: never found
    f1 = [2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3), 1 / 2, 0.0]
    assert macro_f1(truth, guess) == pytest.approx(np.mean(f1))
    # classes that are neither true nor predicted, here 1 and 3, do not count
    assert macro_f1(truth * 2, guess * 2) == pytest.approx(np.mean(f1))
    # classes that are only predicted or only true count as 0
    assert macro_f1(truth, np.where(guess == 1, 3, guess)) == pytest.approx(f1[0] / 4)


def test_mean_cosine_of_all_pairs() -> None:
    rows = unit(20, 8, shift=0.5)
    cosines = cosine_similarity(rows)[np.triu_indices(20, 1)]
    assert mean_cosine(rows) == pytest.approx(cosines.mean(), abs=1e-6)
    assert mean_cosine(unit(20, 8)) < mean_cosine(rows) - 0.1


def test_uniformity_and_alignment() -> None:
    rows, other = unit(20, 8), unit(20, 8, seed=1)
    potentials = np.exp(-2 * pdist(rows.astype(np.float64)) ** 2)
    assert uniformity(rows) == pytest.approx(math.log(potentials.mean()), abs=1e-6)
    assert uniformity(np.repeat(rows[:1], 5, axis=0)) == pytest.approx(0.0, abs=1e-6)
    distances = [float(np.linalg.norm(a - b)) ** 2 for a, b in zip(rows, other, strict=True)]
    assert alignment(rows, other) == pytest.approx(np.mean(distances), abs=1e-6)
    assert alignment(rows, rows) == 0.0


def test_isotropy_of_a_cross_and_of_a_needle() -> None:
    cross = np.asarray([[1, 0], [-1, 0], [0, 1], [0, -1]], dtype=np.float32)
    assert partition_isotropy(cross) == pytest.approx(1.0)
    needle = np.asarray([[1, 0], [1, 0]], dtype=np.float32)
    # Z is 2e along it, 2/e against it, 2 across it
    assert partition_isotropy(needle) == pytest.approx(math.exp(-2))


def test_row_cosines_of_dense_and_of_sparse_rows() -> None:
    one, two = unit(6, 5), unit(6, 5, seed=1)
    expected = np.diag(cosine_similarity(one, two))
    assert row_cosines(one, two) == pytest.approx(expected, abs=1e-6)
    assert row_cosines(csr_matrix(one), csr_matrix(two)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_no_threshold_beats_the_best_one(seed: int) -> None:
    draw = np.random.default_rng(seed)
    positive, negative = draw.normal(0.5, 1, 15), draw.normal(0, 1, 15)
    found = right_sides(positive, negative, best_threshold(positive, negative)).mean()
    values = np.sort(np.concatenate([positive, negative]))
    every = [values[0] - 1, *((a + b) / 2 for a, b in combinations(values, 2)), values[-1] + 1]
    tried = [(sum(p >= t for p in positive) + sum(n < t for n in negative)) / 30 for t in every]
    assert found == pytest.approx(max(tried))
    assert found > min(tried)


def test_each_half_of_the_pairs_is_judged_by_the_threshold_of_the_other() -> None:
    # thresholds: .5 from the rows 0 and 2, .1 from the rows 1 and 3
    positive, negative = np.asarray([0.8, 0.2, 0.8, 0.2]), np.asarray([0.2, 0.0, 0.2, 0.0])
    assert best_threshold(positive[::2], negative[::2]) == pytest.approx(0.5)
    found = two_fold(positive, negative)
    assert found.tolist() == [True, False, True, False, False, True, False, True]
