"""Compare ranking measures with pytrec_eval and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
from sklearn.metrics import ndcg_score

from export.tasks import rank


def hand_made(seed: int) -> tuple[np.ndarray, list[dict[int, float]]]:
    draw = np.random.default_rng(seed)
    scores = draw.permutation(8 * 30).reshape(8, 30).astype(np.float64)
    relevant = [
        {int(d): float(draw.integers(1, 4)) for d in draw.choice(30, size, replace=False)}
        for size in (1, 1, 2, 3, 5, 12, 20, 30)
    ]
    return scores, relevant


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_trec_eval(seed: int) -> None:
    scores, relevant = hand_made(seed)
    run = {f"q{i}": {f"d{j}": float(s) for j, s in enumerate(row)} for i, row in enumerate(scores)}
    judged = {f"q{i}": {f"d{j}": int(g) for j, g in r.items()} for i, r in enumerate(relevant)}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank", "recall.10", "ndcg_cut.10"})
    theirs = evaluator.evaluate(run)
    ours = rank(scores, relevant)
    for i in range(len(scores)):
        assert ours.reciprocal_rank[i] == pytest.approx(theirs[f"q{i}"]["recip_rank"], abs=1e-4)
        assert ours.recall[i] == pytest.approx(theirs[f"q{i}"]["recall_10"], abs=1e-4)
        assert ours.ndcg[i] == pytest.approx(theirs[f"q{i}"]["ndcg_cut_10"], abs=1e-4)


def test_agrees_with_scikit_learn() -> None:
    scores, relevant = hand_made(9)
    grades = np.zeros_like(scores)
    for row, own in zip(grades, relevant, strict=True):
        row[list(own)] = list(own.values())
    ours = rank(scores, relevant).ndcg
    assert ours.mean() == pytest.approx(ndcg_score(grades, scores, k=10))
    assert ours.mean() != pytest.approx(ndcg_score(grades, scores, k=5), abs=1e-3)


def test_agrees_with_figures_by_hand() -> None:
    scores = np.asarray([[0.1, 0.9, 0.5, -np.inf]])
    found = rank(scores, [{2: 1.0}])
    assert found.reciprocal_rank.tolist() == [0.5]
    assert found.ndcg[0] == pytest.approx(1 / np.log2(3))
    # a removed document is never found
    assert rank(scores, [{3: 1.0}]).reciprocal_rank.tolist() == [0.0]
    # among equal scores the lower number comes first
    assert rank(np.zeros((1, 3)), [{2: 1.0}]).reciprocal_rank.tolist() == [pytest.approx(1 / 3)]
