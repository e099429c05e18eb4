"""Retrieval of the documents that answer a query."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from docsplit.corpora.sets import Judged
from export.tasks import rank
from training.evaluation.encoders.interface import Representation
from training.evaluation.results import Figure, Measured
from training.evaluation.tasks.task import Options, Task


class Retrieval(Task):
    """A corpus ranked by cosine for each query."""

    name = "retrieval"
    title = "Retrieval"
    source = "LA(SER)³, section 4 (Tables 1 and 2; BEIR, nDCG@10)"
    differences = (
        "Queries and judgements are BEIR's test part. Title and text form one document. The paper "
        "cuts at 256 tokens. A query that is a document of the corpus does not find itself. An "
        "encoder puts its default prompt before queries and documents."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "ndcg_10": "nDCG@10",
        "recall_10": "recall@10",
        "mrr": "MRR",
    }
    kinds = (Judged,)
    version = 2
    main = "ndcg_10"

    def run(self, representation: Representation, data: Judged, options: Options) -> Measured:
        """nDCG at 10, recall at 10 and MRR over the queries."""
        own = representation.fitted(data.documents)
        documents = own.features(data.documents, options.reading)
        product = own.features(data.queries, options.reading) @ documents.T
        scores = product if isinstance(product, np.ndarray) else product.toarray()
        found = rank(data.without_themselves(scores), data.relevant)
        outcomes = {
            "ndcg_10": found.ndcg,
            "recall_10": found.recall,
            "mrr": found.reciprocal_rank,
        }
        return Measured(
            figures={name: Figure(value=float(v.mean())) for name, v in outcomes.items()},
            counts={"documents": len(data.documents), "queries": len(data.queries)},
            items=self.items(data, options, data.queries, outcomes),
        )
