"""Halves of a document."""

import numpy as np

from training.views.types import Document, Pair, ViewContext


def docsplit(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """Assign each sentence to either half with probability one half. The halves keep the order.

    SimLTE / DocSplit, section 2.2. A split with an empty half is drawn again, so the result is
    uniform over all splits into two non-empty sets.

    Raises:
        ValueError: the document has fewer than two sentences.
    """
    if len(document) < 2:
        raise ValueError("a document of one sentence has no two halves")
    while True:
        first = rng.random(len(document)) < 0.5
        if first.any() and not first.all():
            break
    return (
        [s for s, chosen in zip(document, first, strict=True) if chosen],
        [s for s, chosen in zip(document, first, strict=True) if not chosen],
    )
