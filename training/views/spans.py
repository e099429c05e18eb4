"""Spans of a document and masked copies of them.

The contrastive report, section 4 ("View Selection"). Its negatives are the other spans of the
batch.
"""

import numpy as np

from training.views.masking import mask_words
from training.views.types import Document, Ids, Pair, ViewContext, tokens_of


def spans(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """Two neighbouring spans of ``span_tokens`` each, at a random place.

    A document shorter than two spans gives two neighbouring halves.
    """
    first, second = _neighbours(document, rng, context)
    return [first], [second]


def slices(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """One span, with words masked twice independently."""
    ids = tokens_of(document)
    length = min(context.objective.span_tokens, len(ids))
    start = int(rng.integers(len(ids) - length + 1))
    span = ids[start : start + length]
    return [mask_words(span, rng, context)], [mask_words(span, rng, context)]


def spans_and_slices(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """Two neighbouring spans, with words of each masked."""
    first, second = _neighbours(document, rng, context)
    return [mask_words(first, rng, context)], [mask_words(second, rng, context)]


def _neighbours(
    document: Document, rng: np.random.Generator, context: ViewContext
) -> tuple[Ids, Ids]:
    ids = tokens_of(document)
    length = min(context.objective.span_tokens, len(ids) // 2)
    start = int(rng.integers(len(ids) - 2 * length + 1))
    middle = start + length
    return ids[start:middle], ids[middle : middle + length]
