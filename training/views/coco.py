"""Two sentences of a document."""

import numpy as np

from training.views.types import Document, Pair, ViewContext


def coco(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """Two different random sentences of the document.

    This is the unsupervised pretraining of COCO-DR (Yu et al. 2022) as the LA(SER)^3 paper
    describes it under "Baselines" in section 4.

    Raises:
        ValueError: the document has fewer than two sentences.
    """
    if len(document) < 2:
        raise ValueError("a document of one sentence has no two sentences")
    first, second = rng.choice(len(document), size=2, replace=False)
    return [document[first]], [document[second]]
