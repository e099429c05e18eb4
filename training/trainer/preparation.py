"""Prepare the batches: turn documents into chunks of padded rows for the encoder.

Run, batch and document seed the random generators. Every process therefore prepares the same batch,
and a batch does not depend on earlier ones.
"""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from docsplit.windowing.vectors import pad
from training.batches import Neighbourhood, plan_chunks, shared
from training.links import HardNegatives, LinkedViews, LinkGraph
from training.losses import choose_masked
from training.settings import Settings
from training.tokens import Specials, TokenCache
from training.views import Drawer, OwnViews, View, ViewContext, pack_windows, view_of, word_starts


@dataclass(frozen=True)
class Row:
    """One input of the encoder.

    Attributes:
        ids: int64, special tokens included.
        view: number of the view that contains this window.
        weight: number of tokens without special tokens.
        disguised: ``ids`` after masking; None without masked LM.
        positions: positions of the tokens to predict.
        labels: the original tokens there.
    """

    ids: npt.NDArray[np.int64]
    view: int
    weight: int
    disguised: npt.NDArray[np.int64] | None = None
    positions: npt.NDArray[np.int64] | None = None
    labels: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Chunk:
    """Rows of similar length that are encoded together.

    Attributes:
        number: place in the batch's list of chunks; with the batch's number it seeds dropout.
        rows: int64 ``[n]``, the rows' numbers in the batch.
        input_ids: int64 ``[n, tokens]``, the contrasted inputs.
        attention_mask: int64 ``[n, tokens]``.
        plain_ids: int64 ``[n, tokens]``, teachers' inputs if ``input_ids`` are masked, else None.
        disguised_ids: int64 ``[n, tokens]``, inputs of a separate masked LM pass, else None.
        positions: int64 ``[m]`` into the flattened rows, positions of the tokens to predict.
        labels: int64 ``[m]``, the tokens there.
    """

    number: int
    rows: Tensor
    input_ids: Tensor
    attention_mask: Tensor
    plain_ids: Tensor | None
    disguised_ids: Tensor | None
    positions: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> "Chunk":
        """A copy on another device."""
        moved: dict[str, Any] = {
            field.name: value.to(device, non_blocking=True)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return dataclasses.replace(self, **moved)


@dataclass(frozen=True)
class Batch:
    """One process's part of a batch.

    Attributes:
        number: number of the batch in the run.
        documents: numbers of the documents in the cache.
        views: number of views of each document, 1 or 2.
        negatives: number of views of further documents, which are negatives.
        chunks: the chunks that this process encodes.
        row_view: int64 ``[rows]`` of the whole batch: the first views, the second ones, the
            further negatives.
        row_weight: float ``[rows]``.
        masked: number of tokens to predict in the whole batch.
        tokens: number of encoded tokens in the whole batch, special ones included.
        padded: number of encoded tokens in the whole batch, padding included.
        cut: number of tokens of the views that did not fit their windows.
        left_out: bool ``[documents, documents + negatives]``, which first views have no negative
            in which other view; None if all have.
    """

    number: int
    documents: tuple[int, ...]
    views: int
    negatives: int
    chunks: tuple[Chunk, ...]
    row_view: Tensor
    row_weight: Tensor
    masked: int
    tokens: int
    padded: int
    cut: int
    left_out: Tensor | None = None

    @property
    def left_out_share(self) -> float:
        """Share of a first view's possible negatives that are left out."""
        if self.left_out is None:
            return 0.0
        return float(self.left_out.sum()) / (self.left_out.numel() - len(self.left_out))


class Preparation:
    """Draws views, masks tokens, cuts windows and distributes chunks."""

    def __init__(
        self,
        cache: TokenCache,
        tokenizer: PreTrainedTokenizerBase,
        settings: Settings,
        *,
        rank: int,
        count: int,
        chunk_tokens: int,
        neighbourhood: Neighbourhood | None = None,
        graph: LinkGraph | None = None,
        negatives: HardNegatives | None = None,
    ) -> None:
        """Prepare batches for process ``rank`` of ``count``.

        Args:
            cache: the documents.
            tokenizer: of the encoder.
            settings: of the run.
            rank: number of this process.
            count: number of processes.
            chunk_tokens: padded tokens of a chunk.
            neighbourhood: the start weights' vectors, if the settings need them.
            graph: links of the documents, for the view links.
            negatives: hard negatives for the view links.
        """
        self._neighbourhood, self._graph = neighbourhood, graph
        self.specials = Specials.of(tokenizer)
        self._objective = settings.objective
        self._shared_pass = settings.objective.mlm_inputs == "shared"
        self._seed = settings.run.seed
        self._rank, self._count = rank, count
        self._chunk_tokens = chunk_tokens
        self._context = ViewContext(
            objective=settings.objective,
            window=settings.backbone.max_tokens - self.specials.count,
            mask_id=self.specials.mask,
            word_starts=word_starts(tokenizer),
        )
        self._draw = _drawer(cache, self._context, graph, negatives)

    def batch(self, number: int, documents: Sequence[int]) -> Batch:
        """Prepare batch ``number`` of the run."""
        rows: list[Row] = []
        views, cut = 1, 0
        partners: list[int] = []
        negatives: list[int] = []
        for place, document in enumerate(documents):
            rng = np.random.default_rng([self._seed, number, document])
            drawn = self._draw(document, rng)
            numbered = [
                (side * len(documents) + place, view)
                for side, view in enumerate(drawn.pair)
                if view is not None
            ]
            views = max(views, len(numbered))
            first = 2 * len(documents) + len(negatives)
            numbered += [(first + i, view) for i, (_, view) in enumerate(drawn.negatives)]
            partners.append(drawn.partner)
            negatives += [one for one, _ in drawn.negatives]
            for which, view in numbered:
                made = self._rows(view, which, rng)
                cut += sum(map(len, view)) - sum(row.weight for row in made)
                rows += made
        planned = plan_chunks([len(r.ids) for r in rows], self._chunk_tokens, self._count)
        return Batch(
            number=number,
            documents=tuple(map(int, documents)),
            views=views,
            negatives=len(negatives),
            chunks=tuple(
                self._chunk(i, planned[i], rows)
                for i in shared(len(planned), self._rank, self._count)
            ),
            row_view=torch.tensor([r.view for r in rows]),
            row_weight=torch.tensor([r.weight for r in rows], dtype=torch.float32),
            masked=sum(len(r.labels) for r in rows if r.labels is not None),
            tokens=sum(len(r.ids) for r in rows),
            padded=sum(len(c) * max(len(rows[i].ids) for i in c) for c in planned),
            cut=cut,
            left_out=self._left_out(documents, [*partners, *negatives]),
        )

    def _left_out(self, documents: Sequence[int], others: Sequence[int]) -> Tensor | None:
        least = self._objective.negatives_below
        found = np.zeros((len(documents), len(others)), dtype=np.bool_)
        if least < 1 and self._neighbourhood is not None:
            found |= self._neighbourhood.cosines(documents, others) >= least
        if self._graph is not None:
            found |= self._graph.related(documents, others)
        # the positives
        np.fill_diagonal(found, False)
        return torch.from_numpy(found) if found.any() else None

    def _rows(self, view: View, number: int, rng: np.random.Generator) -> list[Row]:
        rows = []
        for ids in pack_windows(view, self._context.window, self._objective.windows):
            row = Row(self.specials.wrap(ids), number, len(ids))
            if self._objective.mlm_factor:
                disguised, chosen = choose_masked(
                    ids,
                    rng,
                    rate=self._objective.mlm_rate,
                    mask_id=self.specials.mask,
                    vocabulary=self.specials.vocabulary,
                )
                # Tokens that a slice view has masked are not predicted.
                chosen = chosen[ids[chosen] != self.specials.mask]
                row = dataclasses.replace(
                    row,
                    disguised=self.specials.wrap(disguised),
                    positions=chosen + len(self.specials.prefix),
                    labels=ids[chosen].astype(np.int64),
                )
            rows.append(row)
        return rows

    def _chunk(self, number: int, members: list[int], rows: list[Row]) -> Chunk:
        chosen = [rows[i] for i in members]
        width = max(len(row.ids) for row in chosen)
        plain, mask = self._padded([row.ids for row in chosen])
        disguised = None
        if chosen[0].disguised is not None:
            disguised, _ = self._padded([r.disguised for r in chosen if r.disguised is not None])
        shared = self._shared_pass and disguised is not None
        positions = [
            i * width + r.positions for i, r in enumerate(chosen) if r.positions is not None
        ]
        labels = [r.labels for r in chosen if r.labels is not None]
        none = [np.empty(0, dtype=np.int64)]
        return Chunk(
            number=number,
            rows=torch.tensor(members),
            input_ids=disguised if shared and disguised is not None else plain,
            attention_mask=mask,
            plain_ids=plain if shared and self._objective.teacher else None,
            disguised_ids=None if shared else disguised,
            positions=torch.from_numpy(np.concatenate(positions or none)),
            labels=torch.from_numpy(np.concatenate(labels or none)),
        )

    def _padded(self, rows: list[npt.NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
        ids, mask = pad(rows, self.specials.pad)
        return torch.from_numpy(ids), torch.from_numpy(mask)


def _drawer(
    cache: TokenCache,
    context: ViewContext,
    graph: LinkGraph | None,
    negatives: HardNegatives | None,
) -> Drawer:
    view = view_of(context.objective)
    own = None if view is None else OwnViews(cache, view, context)
    if graph is not None:
        return LinkedViews(cache, graph, negatives, context, own)
    if own is None:
        raise ValueError("the view links needs a graph")
    return own


@contextmanager
def prefetch(
    prepare: Callable[[int], Batch], first: int, last: int, workers: int
) -> Iterator[Iterator[Batch]]:
    """Batches ``first`` to ``last - 1`` in order.

    Each of ``workers`` threads prepares one batch in advance. Without workers each batch is
    prepared when it is needed.
    """
    if workers == 0:
        yield map(prepare, range(first, last))
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="prepare")
    try:
        yield _ahead(pool, prepare, first, last, workers + 1)
    finally:
        pool.shutdown(cancel_futures=True)


def _ahead(
    pool: ThreadPoolExecutor, prepare: Callable[[int], Batch], first: int, last: int, depth: int
) -> Iterator[Batch]:
    waiting: deque[Future[Batch]] = deque()
    for number in range(first, last):
        waiting.append(pool.submit(prepare, number))
        if len(waiting) > depth:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
