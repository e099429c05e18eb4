"""Citation retrieval: does a document find the documents that it cites?"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from export.tasks.ranking import rank

_RESAMPLES = 2_000


@dataclass(frozen=True)
class Retrieval:
    """Measures over citing documents.

    Attributes:
        mrr: mean reciprocal rank of the first cited document.
        recall_at_10: mean share of the cited documents among the first ten.
        queries: citing documents.
        links: citations among the documents.
    """

    mrr: float
    recall_at_10: float
    queries: int
    links: int


def reciprocal_ranks(
    vectors: Tensor, links: Mapping[int, set[int]]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Reciprocal rank and recall at 10 of each citing document, in ascending order of numbers.

    Args:
        vectors: unit vectors float ``[documents, width]``; all other documents are candidates.
        links: the cited documents of each citing document.
    """
    scores = (vectors @ vectors.T).numpy().copy()
    np.fill_diagonal(scores, -np.inf)
    queries = sorted(links)
    found = rank(scores[queries], [dict.fromkeys(links[query], 1.0) for query in queries])
    return found.reciprocal_rank, found.recall


def citation_retrieval(vectors: Tensor, links: Mapping[int, set[int]]) -> Retrieval:
    """Measure how citing documents find cited ones (DocSplit, section 3: document retrieval)."""
    first, recall = reciprocal_ranks(vectors, links)
    return Retrieval(
        mrr=float(first.mean()),
        recall_at_10=float(recall.mean()),
        queries=len(links),
        links=sum(map(len, links.values())),
    )


def difference_interval(
    before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """95 % interval of the mean paired difference, by bootstrap over the queries."""
    rng = np.random.default_rng(0)
    difference = after - before
    draws = rng.integers(len(difference), size=(_RESAMPLES, len(difference)))
    low, high = np.quantile(difference[draws].mean(1), [0.025, 0.975])
    return float(low), float(high)
