"""Validation without labels: do two parts of a document find each other?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.data.cache import Numbers, TokenCache
from training.evaluation.metrics.thresholds import two_fold_accuracy
from training.settings import ObjectiveSettings
from training.views.docsplit import docsplit
from training.views.types import Ids, View, ViewContext, tokens_of

SPAN_TOKENS = 64
_SEED = 20_000

Embed = Callable[[Sequence[View]], Tensor]


@dataclass(frozen=True)
class Validation:
    """Measures on held-out documents.

    Attributes:
        discrimination: accuracy of telling from two spans' cosine whether they are of the same
            document; chance is 0.5.
        mrr: mean reciprocal rank of a document's other half among the halves of all documents.
        documents: how many were used.
    """

    discrimination: float
    mrr: float
    documents: int


def validate(
    cache: TokenCache, documents: Sequence[int], embed: Embed, *, span_tokens: int = SPAN_TOKENS
) -> Validation:
    """Measure an encoder on held-out documents.

    The texts depend only on the documents, never on the objective or the run's seed, so that runs
    can be compared. Discrimination is the contrastive report's check during training (section 5,
    "2 spans ... from the same document or different document") on two spans that do not overlap.
    Retrieval uses the two halves of DocSplit (section 2.2).

    Args:
        cache: where the documents are.
        documents: their numbers, at least two.
        embed: unit vectors ``[texts, width]`` of texts.
        span_tokens: length of a span; shorter where the document holds no two of them.
    """
    spans: list[tuple[Ids, Ids]] = []
    halves: list[tuple[View, View]] = []
    for document in documents:
        rng = np.random.default_rng([_SEED, int(document)])
        sentences = cache.sentences(document)
        spans.append(two_spans(tokens_of(sentences), span_tokens, rng))
        first, second = docsplit(sentences, rng, _NO_CONTEXT)
        assert second is not None  # noqa: S101 - docsplit always gives two
        halves.append((first, second))
    texts: list[View] = [[a] for a, _ in spans] + [[b] for _, b in spans]
    texts += [a for a, _ in halves] + [b for _, b in halves]
    n = len(documents)
    vectors = embed(texts)
    return Validation(
        discrimination=same_document_accuracy(vectors[:n], vectors[n : 2 * n]),
        mrr=mean_reciprocal_rank(vectors[2 * n : 3 * n], vectors[3 * n :]),
        documents=n,
    )


def two_spans(ids: Ids, length: int, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Two spans of equal length that do not overlap, uniform over all such pairs in order."""
    length = min(length, len(ids) // 2)
    slack = len(ids) - 2 * length
    first, second = np.sort(rng.integers(slack + 1, size=2))
    return ids[first : first + length], ids[second + length : second + 2 * length]


def same_document_accuracy(first: Tensor, second: Tensor) -> float:
    """Accuracy of a cosine threshold at telling same-document pairs from others.

    Each document gives one pair of its own and one with its successor.

    Args:
        first: unit vectors float ``[documents, width]``, at least two.
        second: the same documents' other spans.
    """
    same = (first * second).sum(1).numpy()
    other = (first * second.roll(-1, 0)).sum(1).numpy()
    return two_fold_accuracy(same, other)


def mean_reciprocal_rank(queries: Tensor, candidates: Tensor) -> float:
    """MRR of candidate i for query i among all candidates; ties count against it."""
    scores = queries @ candidates.T
    own = scores.diagonal()[:, None]
    others = (scores >= own).sum(1)  # its own candidate included
    return float((1.0 / others.float()).mean())


_NO_CONTEXT = ViewContext(
    objective=ObjectiveSettings(),
    window=1,
    mask_id=-1,
    word_starts=np.ones(1, dtype=np.bool_),
)


def pick(documents: Numbers, most: int) -> list[int]:
    """``most`` of the documents, spread evenly; all where there are no more."""
    if len(documents) <= most:
        return [int(d) for d in documents]
    places = torch.linspace(0, len(documents) - 1, most).round().long().tolist()
    return [int(documents[p]) for p in places]
