"""Gradients of one contrastive batch of any size, shared by any number of processes.

The loss and the encoder are differentiated separately (Gao et al. 2021, "Scaling Deep Contrastive
Learning Batch Size under Memory Limited Setup", section 3). The loss over all vectors of the batch
gives every vector its gradient. Each chunk of rows then propagates the gradients of its vectors
back through the encoder. Processes exchange only vectors. Every process computes the same loss
over the same vectors, so its rows get their whole gradient, as anchors and as negatives of others.
The processes then sum the gradients of the parameters.

With ``cached`` no activations are kept. Each chunk is encoded once without a graph, and again from
the same random state when its gradient is known. A second copy with masked tokens waits for no
other chunk, so its activations are never kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.encoder import Encoder, Teacher
from training.losses import (
    MaskedLMHead,
    info_nce,
    masked_lm_gradient,
    nt_xent,
    pool_windows,
    similarity_loss,
    teacher_loss,
)
from training.processes import Processes
from training.settings import ObjectiveSettings
from training.trainer.preparation import Batch, Chunk

# numbers of the random states of second copies, above those of all chunks
_COPY = 1 << 32


@dataclass(frozen=True)
class BatchLoss:
    """Losses of one batch.

    Attributes:
        total: the minimised loss.
        contrastive: its contrastive part; 0 without one.
        teacher: mean distance to the teachers, unweighted; 0 without one.
        mlm: mean cross entropy of the predicted tokens, unweighted; 0 without any.
        accuracy: share of documents whose own second view is the nearest to the first.
    """

    total: float
    contrastive: float
    teacher: float
    mlm: float
    accuracy: float


def seed_dropout(seed: int, batch: int, chunk: int) -> None:
    """Set torch's random state for one chunk of one batch.

    Replaying a chunk, resuming a run and moving a chunk to another process therefore need no stored
    random state.
    """
    state = np.random.SeedSequence([seed, batch, chunk]).generate_state(1, np.uint64)[0]
    if torch.accelerator.is_available():
        torch.manual_seed(int(state) >> 1)
    else:
        # `torch.manual_seed` would also format the stack, for devices that it may find later
        torch.default_generator.manual_seed(int(state) >> 1)


class BatchGradients:
    """Accumulates the gradients of batches in the parameters."""

    def __init__(
        self,
        encoder: Encoder,
        head: MaskedLMHead | None,
        objective: ObjectiveSettings,
        processes: Processes,
        *,
        seed: int,
        cached: bool,
        teachers: Sequence[Teacher] = (),
        reseed: Callable[[int, int, int], None] = seed_dropout,
    ) -> None:
        """Gradients of ``objective`` with respect to ``encoder`` and ``head``.

        Args:
            encoder: the encoder, in training mode.
            head: masked LM head; None if the objective has no such part.
            objective: the losses.
            processes: the processes that share each batch.
            seed: the run's seed.
            cached: keep no activations and encode twice.
            teachers: the teachers of the objective.
            reseed: sets the random state before a chunk is encoded.
        """
        self._encoder = encoder
        self._head = head
        self._objective = objective
        self._processes = processes
        self._seed = seed
        # Without a contrastive loss no chunk waits for another, so none keeps its activations.
        self._cached = cached or objective.contrastive is None
        self._teachers = teachers
        self._reseed = reseed

    def accumulate(self, batch: Batch, share: float = 1.0) -> BatchLoss:
        """Add this process's part of the gradients of ``share`` times the batch's loss.

        The sum over the processes (``Processes.sum_gradients``) is the gradient. If the loss is not
        finite, nothing is added.

        Args:
            batch: this process's part of the batch.
            share: factor, such as 1 / batches per step.
        """
        chunks = [chunk.to(self._processes.device) for chunk in batch.chunks]
        vectors: list[Tensor] = []
        carried: list[Tensor] = []
        mlm = torch.zeros((), device=self._processes.device)
        if self._objective.contrastive:
            for chunk in chunks:
                with torch.set_grad_enabled(not self._cached):
                    pooled, extra, loss = self._encode(batch, chunk, share, learn=not self._cached)
                vectors.append(pooled)
                carried.append(extra)
                mlm = mlm + loss
        contrastive, taught, accuracy, gradients = self._contrast(batch, chunks, vectors, share)
        total = contrastive + self._objective.teacher_weight * taught
        if not np.isfinite(total):
            return BatchLoss(total, contrastive, taught, 0.0, accuracy)
        for i, chunk in enumerate(chunks):
            if gradients is not None or chunk.disguised_ids is None:
                if self._cached:
                    pooled, extra, loss = self._encode(batch, chunk, share, learn=True)
                    mlm = mlm + loss
                else:
                    pooled, extra = vectors[i], carried[i]
                objective = extra
                if gradients is not None:
                    objective = objective + (pooled * gradients[chunk.rows]).sum()
                if objective.requires_grad:
                    objective.backward()  # type: ignore[no-untyped-call]
            if chunk.disguised_ids is not None:
                mlm = mlm + self._learn_copy(batch, chunk, chunk.disguised_ids, share)
        mean = float(self._processes.sum(mlm)) / max(1, batch.masked)
        total += self._objective.mlm_factor * mean
        return BatchLoss(total, contrastive, taught, mean, accuracy)

    def _encode(
        self, batch: Batch, chunk: Chunk, share: float, *, learn: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors, a scalar that carries the masked LM gradient, and the summed masked LM loss."""
        self._reseed(self._seed, batch.number, chunk.number)
        nothing = torch.zeros((), device=chunk.input_ids.device)
        with self._processes.autocast():
            states, pooled = self._encoder(chunk.input_ids, chunk.attention_mask)
            if not learn or chunk.disguised_ids is not None:
                return pooled, nothing, nothing
            extra, loss = self._predict(batch, chunk, states, share)
        return pooled, extra, loss

    def _learn_copy(self, batch: Batch, chunk: Chunk, ids: Tensor, share: float) -> Tensor:
        """Add the gradient of a second copy's masked LM; its summed loss."""
        self._reseed(self._seed, batch.number, _COPY + chunk.number)
        with self._processes.autocast():
            states, _ = self._encoder(ids, chunk.attention_mask)
            extra, loss = self._predict(batch, chunk, states, share)
        if extra.requires_grad:
            extra.backward()  # type: ignore[no-untyped-call]
        return loss

    def _predict(
        self, batch: Batch, chunk: Chunk, states: Tensor, share: float
    ) -> tuple[Tensor, Tensor]:
        """A scalar that carries the masked LM gradient, and the summed loss."""
        nothing = torch.zeros((), device=states.device)
        if self._head is None or len(chunk.labels) == 0:
            return nothing, nothing
        hidden = states.flatten(0, 1)[chunk.positions]
        scale = share * self._objective.mlm_factor / batch.masked
        loss, gradient = masked_lm_gradient(self._head, hidden, chunk.labels, scale)
        return (hidden.float() * gradient.float()).sum(), loss

    def _contrast(
        self, batch: Batch, chunks: list[Chunk], vectors: list[Tensor], share: float
    ) -> tuple[float, float, float, Tensor | None]:
        """Both losses, accuracy, and ``share`` times their gradient for every row's vector."""
        kind = self._objective.contrastive
        if kind is None:
            return 0.0, 0.0, 0.0, None
        width = self._encoder.backbone.config.hidden_size
        rows = self._gather(batch, chunks, vectors, width).requires_grad_()
        device = rows.device
        documents = len(batch.documents)
        views = self._pool(batch, rows)
        first, second = views[:documents], views[documents:]
        temperature = self._objective.temperature
        left_out = None if batch.left_out is None else batch.left_out.to(device)
        if kind == "nt_xent":
            loss = nt_xent(first, second, temperature, left_out=left_out)
        else:
            symmetric = self._objective.symmetric
            loss = info_nce(first, second, temperature, symmetric=symmetric, left_out=left_out)
        taught = torch.zeros((), device=device)
        if self._teachers:
            # cosines of joined unit vectors are the means of the teachers' cosines
            targets = torch.cat([self._taught(batch, chunks, one) for one in self._teachers], 1)
            taught = self._distance(first, second[:documents], targets)
        total = loss + self._objective.teacher_weight * taught
        (total * share).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            unit = torch.nn.functional.normalize(views, dim=-1)
            cosines = unit[:documents] @ unit[documents:].T
            if left_out is not None:
                cosines = cosines.masked_fill(left_out, -torch.inf)
            nearest = cosines.argmax(1)
            hit = nearest == torch.arange(documents, device=device)
        return float(loss.detach()), float(taught.detach()), float(hit.float().mean()), rows.grad

    def _pool(self, batch: Batch, rows: Tensor) -> Tensor:
        view, weight = batch.row_view.to(rows.device), batch.row_weight.to(rows.device)
        return pool_windows(rows, view, weight, 2 * len(batch.documents) + batch.negatives)

    def _distance(self, first: Tensor, second: Tensor, target: Tensor) -> Tensor:
        if self._objective.teacher_match == "vectors":
            return teacher_loss(first, second, target)
        return similarity_loss(first, second, target, self._objective.teacher_temperature)

    def _taught(self, batch: Batch, chunks: list[Chunk], teacher: Teacher) -> Tensor:
        """A teacher's unit vectors of the first views, float ``[documents, width]``."""
        vectors = []
        for chunk in chunks:
            plain = chunk.input_ids if chunk.plain_ids is None else chunk.plain_ids
            first = (batch.row_view[chunk.rows.cpu()] < len(batch.documents)).to(chunk.rows.device)
            pooled = torch.zeros(len(first), teacher.width, device=first.device)
            if first.any():
                with self._processes.autocast():
                    pooled[first] = teacher.vectors(plain[first], chunk.attention_mask[first])
            vectors.append(pooled)
        rows = self._gather(batch, chunks, vectors, teacher.width)
        targets = self._pool(batch, rows)[: len(batch.documents)]
        return torch.nn.functional.normalize(targets, dim=-1)

    def _gather(
        self, batch: Batch, chunks: list[Chunk], vectors: list[Tensor], width: int
    ) -> Tensor:
        """Vectors of all rows of the batch, detached, on every process."""
        full = torch.zeros(len(batch.row_view), width, device=self._processes.device)
        for chunk, pooled in zip(chunks, vectors, strict=True):
            full[chunk.rows] = pooled.detach()
        return self._processes.sum(full)
