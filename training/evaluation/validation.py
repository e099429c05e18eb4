"""Validation without labels: does one part of a document find the other?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.data.cache import Numbers, TokenCache
from training.evaluation.metrics.thresholds import two_fold
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
        discrimination: accuracy of deciding by the cosine of two spans whether they come from the
            same document; chance is 0.5.
        mrr: mean reciprocal rank of a document's other half among the halves of all documents.
        documents: number of documents used.
    """

    discrimination: float
    mrr: float
    documents: int


def validate(
    cache: TokenCache, documents: Sequence[int], embed: Embed, *, span_tokens: int = SPAN_TOKENS
) -> Validation:
    """Measure an encoder on held-out documents.

    The texts depend only on the documents, not on the objective or the run's seed, so runs are
    comparable. Discrimination is the contrastive report's check during training (section 5,
    "2 spans ... from the same document or different document") on two spans that do not overlap.
    Retrieval uses the two halves of DocSplit (section 2.2).

    Args:
        cache: the cache of the documents.
        documents: numbers of the documents, at least two.
        embed: returns unit vectors ``[texts, width]`` of texts.
        span_tokens: length of a span; shorter if the document is too short for two.
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
    """Two spans of equal length that do not overlap, uniform over all such ordered pairs."""
    length = min(length, len(ids) // 2)
    slack = len(ids) - 2 * length
    first, second = np.sort(rng.integers(slack + 1, size=2))
    return ids[first : first + length], ids[second + length : second + 2 * length]


def same_document_accuracy(first: Tensor, second: Tensor) -> float:
    """Accuracy of a cosine threshold at separating same-document pairs from others.

    Each document gives one pair of its own spans and one with the next document.

    Args:
        first: unit vectors float ``[documents, width]``, at least two.
        second: the same documents' other spans.
    """
    same = (first * second).sum(1).numpy()
    other = (first * second.roll(-1, 0)).sum(1).numpy()
    return float(two_fold(same, other).mean())


def mean_reciprocal_rank(queries: Tensor, candidates: Tensor) -> float:
    """MRR of candidate i for query i among all candidates; ties count against it."""
    scores = queries @ candidates.T
    own = scores.diagonal()[:, None]
    others = (scores >= own).sum(1)  # includes its own candidate
    return float((1.0 / others.float()).mean())


_NO_CONTEXT = ViewContext(
    objective=ObjectiveSettings(),
    window=1,
    mask_id=-1,
    word_starts=np.ones(1, dtype=np.bool_),
)


def pick(documents: Numbers, most: int) -> list[int]:
    """``most`` of the documents, evenly spread, or all if there are fewer."""
    if len(documents) <= most:
        return [int(d) for d in documents]
    places = torch.linspace(0, len(documents) - 1, most).round().long().tolist()
    return [int(documents[p]) for p in places]
