"""Retrieval of the documents that answer a query."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from docsplit.corpora.sets import Judged
from docsplit.windowing.pooling import Vectors
from export.tasks.ranking import rank

# bounds the scores in memory
_QUERIES_AT_ONCE = 64


class Retrieval:
    """A judged set whose corpus is ranked by cosine for each query (BEIR, Thakur et al. 2021)."""

    name: Literal["retrieval"] = "retrieval"
    metric = "nDCG@10"

    def __init__(self, judged: Judged) -> None:
        self._judged = judged
        self.data = judged.name
        self.digest = judged.digest
        self.texts: Sequence[str] = [*judged.documents, *judged.queries]
        self.documents = len(judged.documents)
        self.cases = len(judged.queries)

    def figure(self, vectors: Vectors) -> float:
        """Mean nDCG at 10 over the queries; ``vectors`` are those of documents, then queries."""
        documents, queries = vectors[: self.documents], vectors[self.documents :]
        found = [
            rank(
                self._judged.without_themselves(
                    queries[start : start + _QUERIES_AT_ONCE] @ documents.T, start
                ),
                self._judged.relevant[start : start + _QUERIES_AT_ONCE],
            ).ndcg
            for start in range(0, self.cases, _QUERIES_AT_ONCE)
        ]
        return float(np.concatenate(found).mean())
