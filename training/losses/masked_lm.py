"""Masked language modelling, computed only at masked positions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor, nn

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
