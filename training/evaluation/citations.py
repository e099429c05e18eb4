"""Citation retrieval: does a document find the documents that it cites?"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from export.tasks import rank

_RESAMPLES = 2_000
_AT_ONCE = 2**18


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
    return middle_95(resampled_means(after - before, _RESAMPLES))


def resampled_means(
    values: npt.NDArray[np.float64], resamples: int, seed: int = 0
) -> npt.NDArray[np.float64]:
    """Means of draws with replacement, each of as many values as there are, ``[resamples]``."""
    rng = np.random.default_rng(seed)
    count = len(values)
    # a few resamples at once, so that memory is bounded and the caches of the processor suffice
    rows = max(1, _AT_ONCE // count)
    sizes = [min(rows, resamples - first) for first in range(0, resamples, rows)]
    return np.concatenate([values[rng.integers(count, size=(n, count))].mean(1) for n in sizes])


def middle_95(means: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The interval that holds the middle 95 % of the values."""
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
