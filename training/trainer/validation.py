"""Validation without labels: does one part of a document find the other?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from docsplit.windowing.vectors import pad
from training.batches import plan_chunks, shared
from training.encoder import Encoder
from training.evaluation.metrics import two_fold
from training.losses import pool_windows
from training.processes import Processes
from training.tokens import Numbers, Specials, TokenCache
from training.views import Ids, View, halves, pack_windows, tokens_of

# Embed texts that are already token ids.


def embed_texts(
    texts: Sequence[View],
    encoder: Encoder,
    specials: Specials,
    processes: Processes,
    *,
    max_tokens: int,
    windows: int = 1,
    chunk_tokens: int = 2048,
) -> Tensor:
    """Unit vectors of texts. Windows are pooled as in the service.

    Args:
        texts: pieces of token ids without special tokens.
        encoder: in training or evaluation mode. The function restores the mode.
        specials: the tokenizer's special tokens.
        processes: the processes that share the work. Each gets all vectors.
        max_tokens: longest window, special tokens included.
        windows: maximum number of windows of a text.
        chunk_tokens: approximate number of tokens to encode at once.

    Returns:
        float32 ``[texts, width]`` on the CPU.
    """
    rows: list[Ids] = []
    owner: list[int] = []
    weight: list[int] = []
    for number, text in enumerate(texts):
        for ids in pack_windows(text, max_tokens - specials.count, windows):
            rows.append(specials.wrap(ids))
            owner.append(number)
            weight.append(len(ids))
    chunks = plan_chunks([len(row) for row in rows], chunk_tokens, processes.count)
    full = torch.zeros(len(rows), encoder.backbone.config.hidden_size, device=processes.device)
    was_training = encoder.training
    encoder.eval()
    with torch.inference_mode():
        for number in shared(len(chunks), processes.rank, processes.count):
            chunk = chunks[number]
            full[chunk] = _encode([rows[i] for i in chunk], encoder, specials.pad, processes)
        processes.sum(full)
    encoder.train(was_training)
    pooled = pool_windows(
        full.cpu(), torch.tensor(owner), torch.tensor(weight, dtype=torch.float32), len(texts)
    )
    return F.normalize(pooled, dim=-1)


def _encode(rows: list[Ids], encoder: Encoder, pad_token_id: int, processes: Processes) -> Tensor:
    ids, mask = map(torch.from_numpy, pad(rows, pad_token_id))
    pooled: Tensor = encoder(ids.to(processes.device), mask.to(processes.device))[1]
    return pooled


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
    pairs: list[tuple[View, View]] = []
    for document in documents:
        rng = np.random.default_rng([_SEED, int(document)])
        sentences = cache.sentences(document)
        spans.append(two_spans(tokens_of(sentences), span_tokens, rng))
        pairs.append(halves(sentences, rng))
    texts: list[View] = [[a] for a, _ in spans] + [[b] for _, b in spans]
    texts += [a for a, _ in pairs] + [b for _, b in pairs]
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


def pick(documents: Numbers, most: int) -> list[int]:
    """``most`` of the documents, evenly spread, or all if there are fewer."""
    if len(documents) <= most:
        return [int(d) for d in documents]
    places = torch.linspace(0, len(documents) - 1, most).round().long().tolist()
    return [int(documents[p]) for p in places]
