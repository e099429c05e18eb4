"""Contrastive losses over the two views of each document of a batch."""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from training.settings import ObjectiveSettings


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
