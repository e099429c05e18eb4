"""Distances to a frozen encoder's vectors."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor


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
