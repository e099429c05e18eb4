"""Contrastive losses, masked language modelling, and distances to a teacher."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor, nn

from training.settings import ObjectiveSettings

# Contrastive losses over the two views of each document of a batch.


def info_nce(
    first: Tensor,
    second: Tensor,
    temperature: float,
    *,
    symmetric: bool = False,
    left_out: Tensor | None = None,
) -> Tensor:
    """InfoNCE on cosine similarity with in-batch negatives; SimLTE / DocSplit, eq. 1.

    Args:
        first: float ``[documents, dimensions]``, anchors.
        second: float ``[documents or more, dimensions]``; row i is the positive of anchor i, the
            other rows its negatives.
        temperature: tau.
        symmetric: average with the loss of the positives against ``first``.
        left_out: bool, anchors by rows of ``second``: pairs that are no negatives.

    Returns:
        The mean over the documents, a scalar.
    """
    logits = F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).T / temperature
    if left_out is not None:
        logits = logits.masked_fill(left_out, -torch.inf)
    target = torch.arange(len(first), device=first.device)
    loss = F.cross_entropy(logits, target)
    if symmetric:
        loss = (loss + F.cross_entropy(logits[:, : len(first)].T, target)) / 2
    return loss


def nt_xent(
    first: Tensor, second: Tensor, temperature: float, *, left_out: Tensor | None = None
) -> Tensor:
    """NT-Xent: contrast every view with the other 2N - 1 views of the batch.

    Chen et al. 2020, "SimCLR", eq. 1; the contrastive report, section 4.

    Args:
        first: float ``[documents, dimensions]``.
        second: float ``[documents, dimensions]``; row i is the other view of document i.
        temperature: tau.
        left_out: bool ``[documents, documents]``, symmetric, pairs that are no negatives.

    Returns:
        The mean over all 2N views, a scalar.
    """
    views = F.normalize(torch.cat([first, second]), dim=-1)
    logits = views @ views.T / temperature
    itself = torch.eye(len(views), dtype=torch.bool, device=views.device)
    logits = logits.masked_fill(itself, -torch.inf)
    if left_out is not None:
        logits = logits.masked_fill(left_out.tile(2, 2), -torch.inf)
    count = len(first)
    target = torch.arange(2 * count, device=views.device).roll(count)
    return F.cross_entropy(logits, target)


def chance(objective: ObjectiveSettings, documents: int) -> float | None:
    """Contrastive loss of an encoder that gives all views one vector; None without that loss.

    It is the log of the number of candidates.

    Args:
        objective: with the loss and the number of hard negatives.
        documents: of a batch.
    """
    if objective.contrastive is None:
        return None
    if objective.contrastive == "nt_xent":
        return math.log(2 * documents - 1)
    found = math.log(documents * (1 + (objective.hard_negatives or 0)))
    # hard negatives are no anchors
    return (found + math.log(documents)) / 2 if objective.symmetric else found


def pool_windows(windows: Tensor, view: Tensor, weight: Tensor, views: int) -> Tensor:
    """One vector for each view: the token-weighted mean of its windows' unit vectors.

    The service pools the windows of a document in the same way. The losses renormalise.

    Args:
        windows: float ``[windows, dimensions]``.
        view: int64 ``[windows]``, the view of each window.
        weight: float ``[windows]``, the number of its tokens.
        views: number of views.

    Returns:
        float ``[views, dimensions]``, in the scale of a mean.
    """
    weighted = F.normalize(windows, dim=-1) * weight[:, None]
    total = weighted.new_zeros(views, windows.shape[1]).index_add(0, view, weighted)
    mass = weight.new_zeros(views).index_add(0, view, weight)
    return total / mass[:, None]


Ids = npt.NDArray[np.integer[Any]]

_BLOCK = 2048

# Names of our head's parameters in the checkpoints of common architectures.
_NAMES: tuple[dict[str, str], ...] = (
    {  # BERT, BigBird
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions.bias",
    },
    {  # RoBERTa, XLM-RoBERTa, Longformer, MPNet
        "dense": "lm_head.dense",
        "norm": "lm_head.layer_norm",
        "bias": "lm_head.bias",
    },
    {  # ModernBERT
        "dense": "head.dense",
        "norm": "head.norm",
        "bias": "decoder.bias",
    },
    {  # DistilBERT
        "dense": "vocab_transform",
        "norm": "vocab_layer_norm",
        "bias": "vocab_projector.bias",
    },
)


def choose_masked(
    ids: Ids, rng: np.random.Generator, *, rate: float, mask_id: int, vocabulary: int
) -> tuple[Ids, npt.NDArray[np.int64]]:
    """Choose tokens to predict and replace them.

    Devlin et al. 2019, "BERT", section 3.1: 80 % of the chosen tokens become the mask token,
    10 % a random token, 10 % stay.

    Args:
        ids: token ids without special tokens.
        rng: random generator for the choice.
        rate: probability of choosing each token independently.
        mask_id: the mask token.
        vocabulary: random tokens are drawn from the ids below this number.

    Returns:
        The ids after replacement and the chosen positions, ascending.
    """
    chosen = np.flatnonzero(rng.random(len(ids)) < rate)
    out = ids.copy()
    fate = rng.random(len(chosen))
    out[chosen[fate < 0.8]] = mask_id
    randomised = chosen[(fate >= 0.8) & (fate < 0.9)]
    out[randomised] = rng.integers(vocabulary, size=len(randomised))
    return out, chosen


class MaskedLMHead(nn.Module):
    """BERT's prediction head: dense, GELU, LayerNorm, and the embedding table as decoder.

    Without trained weights the dense layer starts as the identity. A position then predicts the
    tokens whose embeddings are nearest to its hidden state.
    """

    def __init__(self, embeddings: nn.Embedding, *, epsilon: float = 1e-12) -> None:
        """A head over the vocabulary of ``embeddings``. It shares their weight."""
        super().__init__()
        width = embeddings.embedding_dim
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(embeddings.num_embeddings))
        self._tied = (embeddings,)  # in a tuple, so that only the encoder registers the table
        with torch.no_grad():
            self.dense.weight.copy_(torch.eye(width))
            self.dense.bias.zero_()

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits float ``[positions, vocabulary]`` of hidden states ``[positions, width]``."""
        transformed = self.norm(F.gelu(self.dense(hidden)))
        return F.linear(transformed, self._tied[0].weight, self.bias)

    def adopt(self, weights: Mapping[str, Tensor]) -> bool:
        """Load the head of a checkpoint if it has one of a known layout.

        Args:
            weights: all tensors of the checkpoint by name.

        Returns:
            Whether the checkpoint has such a head. If not, nothing changes.
        """
        for names in _NAMES:
            dense, norm = f"{names['dense']}.weight", f"{names['norm']}.weight"
            if dense not in weights or norm not in weights:
                continue
            if weights[dense].shape != self.dense.weight.shape:
                continue
            with torch.no_grad():
                self.dense.weight.copy_(weights[dense])
                self.norm.weight.copy_(weights[norm])
                for target, name in (
                    (self.dense.bias, f"{names['dense']}.bias"),
                    (self.norm.bias, f"{names['norm']}.bias"),
                    (self.bias, names["bias"]),
                ):
                    if name in weights and weights[name].shape == target.shape:
                        target.copy_(weights[name])
            return True
        return False


def masked_lm_gradient(
    head: MaskedLMHead, hidden: Tensor, labels: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Loss at masked positions and its gradient with respect to their hidden states.

    The head runs on one block of positions after the other and frees the activations of each. It
    accumulates the gradients of its own parameters. The caller sends the returned gradient through
    the encoder.

    Args:
        head: the prediction head.
        hidden: float ``[positions, width]``, the encoder's states; their graph stays.
        labels: int64 ``[positions]``, the original tokens.
        scale: factor of the summed loss, such as weight / number of positions in the batch.

    Returns:
        The sum of the cross entropies, unscaled and detached, and the gradient of the scaled sum,
        like ``hidden``.
    """
    total = torch.zeros((), device=hidden.device)
    gradients = []
    for start in range(0, len(labels), _BLOCK):
        block = hidden[start : start + _BLOCK].detach().requires_grad_()
        loss = F.cross_entropy(head(block).float(), labels[start : start + _BLOCK], reduction="sum")
        (loss * scale).backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
        assert block.grad is not None  # noqa: S101 - set by backward
        gradients.append(block.grad)
    return total, torch.cat(gradients) if gradients else torch.zeros_like(hidden)


def teacher_loss(first: Tensor, second: Tensor, target: Tensor) -> Tensor:
    """1 - cosine of both views of a document to the teacher's vector of the first.

    InfoNCE is satisfied as soon as an elongated text is nearer to its original than to others. This
    loss is satisfied only when the two agree. The method is the distillation on vectors of Reimers
    and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual Using Knowledge
    Distillation", section 3, whose second view is a translation. The loss uses the cosine, which
    also compares vectors later, instead of the squared distance.

    Args:
        first: float ``[documents, dimensions]``.
        second: float ``[documents, dimensions]``.
        target: float ``[documents, dimensions]``, the teacher's.

    Returns:
        The mean over all views, a scalar from 0 to 2.
    """
    agreement = F.cosine_similarity(first, target) + F.cosine_similarity(second, target)
    return 1 - agreement.mean() / 2


def similarity_loss(first: Tensor, second: Tensor, target: Tensor, temperature: float) -> Tensor:
    """How far the similarities within a batch are from the teacher's.

    A document's cosines to the other documents of the batch, divided by ``temperature``, give a
    softmax. The loss is the Kullback-Leibler divergence of the teacher's from that of each view,
    which is compared with the others' first views. The teacher's vectors may have another width
    (Fang et al. 2021, "SEED: Self-supervised Distillation for Visual Representation", eq. 2, with
    the batch in place of their queue).

    Args:
        first: float ``[documents, dimensions]``.
        second: float ``[documents, dimensions]``.
        target: float ``[documents, the teacher's dimensions]``, of the first views.
        temperature: tau.

    Returns:
        The mean over all views, a scalar of at least 0.
    """
    wanted = _to_others(target, target, temperature)
    apart = [
        F.kl_div(_to_others(view, first, temperature), wanted, reduction="none", log_target=True)
        for view in (first, second)
    ]
    return torch.cat(apart).sum(1).mean()


def _to_others(views: Tensor, documents: Tensor, temperature: float) -> Tensor:
    """Log-softmax of the cosines of row i of ``views`` to all other rows of ``documents``."""
    count = len(views)
    cosines = F.normalize(views, dim=-1) @ F.normalize(documents, dim=-1).T
    others = ~torch.eye(count, dtype=torch.bool, device=views.device)
    return F.log_softmax(cosines[others].view(count, count - 1) / temperature, dim=1)
