"""Measures of a ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """One value for each query, float64 ``[queries]``.

    Attributes:
        reciprocal_rank: of the first relevant document; its mean is the MRR.
        recall: share of the relevant documents among the first ``cut``.
        ndcg: discounted cumulative gain of the first ``cut`` over the best possible (Järvelin &
            Kekäläinen 2002; linear gain, logarithm to base 2, as trec_eval's ``ndcg_cut``).
    """

    reciprocal_rank: Floats
    recall: Floats
    ndcg: Floats


def rank(
    scores: npt.NDArray[np.floating], relevant: Sequence[Mapping[int, float]], cut: int = 10
) -> Ranked:
    """Measure rankings by descending score; among equal scores the lower number comes first.

    Args:
        scores: float ``[queries, documents]``; ``-inf`` removes a document from the ranking.
        relevant: grade above 0 of each relevant document by its number, at least one per query.
        cut: depth of recall and nDCG.
    """
    reciprocal, recall, ndcg = [], [], []
    discounts = 1.0 / np.log2(np.arange(2, cut + 2))
    for row, grades in zip(scores, relevant, strict=True):
        order = np.argsort(-row, kind="stable")
        order = order[np.isfinite(row[order])]
        gains = np.zeros(len(row))
        gains[list(grades)] = list(grades.values())
        found = gains[order]
        hits = found > 0
        reciprocal.append(1.0 / (1 + int(hits.argmax())) if hits.any() else 0.0)
        recall.append(float(hits[:cut].sum()) / len(grades))
        best = np.sort(list(grades.values()))[::-1][:cut]
        gain = float(found[:cut] @ discounts[: len(found[:cut])])
        ndcg.append(gain / float(best @ discounts[: len(best)]))
    return Ranked(np.asarray(reciprocal), np.asarray(recall), np.asarray(ndcg))
