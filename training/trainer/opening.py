"""Open documents, encoder and masked-LM head before the first step of a run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from training.backbones.encoder import Encoder, Start, open_start
from training.backbones.static import StaticBackbone
from training.backbones.teacher import Teacher, open_teachers
from training.data.build import open_cache
from training.data.cache import Numbers, TokenCache
from training.errors import SettingsError
from training.links.graph import LinkGraph, open_graph
from training.losses.masked_lm import MaskedLMHead
from training.processes import Processes
from training.settings import Settings


@dataclass(frozen=True)
class Opened:
    """Documents and modules of a run.

    Attributes:
        train: numbers of the training documents.
        graph: their links; None for views of single documents.
        anchors: the documents of the batches. Those of the view links, without a second kind of
            views, are the linked ones.
        held: numbers of the held-out documents.
        head: the masked-LM head; None if the objective has no masked-LM part.
        head_origin: ``checkpoint`` if the start weights contain the head, else its initialisation.
        teachers: frozen encoders that the objective names.
    """

    cache: TokenCache
    train: Numbers
    graph: LinkGraph | None
    anchors: Numbers
    held: Numbers
    tokenizer: Any
    encoder: Encoder
    head: MaskedLMHead | None
    head_origin: str | None
    teachers: list[Teacher]

    @property
    def modules(self) -> list[torch.nn.Module]:
        """The trained modules."""
        return [m for m in (self.encoder, self.head) if m is not None]


def open_run(settings: Settings, processes: Processes) -> Opened:
    """Open data and start weights.

    Raises:
        TrainingError: settings, data or weights do not fit. The message says which.
    """
    start = open_start(settings.backbone)
    cache = _open_cache(settings, start, processes)
    train, held = cache.select(settings.data.held_out)
    if isinstance(start.encoder.backbone, StaticBackbone):
        start.encoder.backbone.weigh(cache, train)
    links = settings.data.links
    graph = None if links is None else open_graph(Path(links), settings.data, cache, train)
    anchors = train if graph is None or settings.objective.mix else graph.documents
    _check_documents(settings, cache, anchors, held)
    head, origin = _open_head(settings, start)
    if head is not None:
        head.to(processes.device)
    teachers = open_teachers(settings, start, processes.device)
    return Opened(
        cache,
        train,
        graph,
        anchors,
        held,
        start.tokenizer,
        start.encoder.to(processes.device),
        head,
        origin,
        teachers,
    )


def _open_cache(settings: Settings, start: Start, processes: Processes) -> TokenCache:
    if not processes.is_main:
        processes.barrier()
        return open_cache(settings.data, start.tokenizer)
    try:
        return open_cache(settings.data, start.tokenizer, _noter())
    finally:
        processes.barrier()


def _noter() -> Callable[[int, str], None]:
    console = Console(stderr=True, highlight=False)
    last = [time.monotonic()]

    def note(count: int, what: str) -> None:
        now = time.monotonic()
        if now - last[0] >= 2:
            last[0] = now
            console.print(f"{what}: {count:,} documents read", markup=False)

    return note


def _check_documents(
    settings: Settings, cache: TokenCache, anchors: Numbers, held: Numbers
) -> None:
    size = settings.optimisation.batch_size
    if len(anchors) < size:
        kind = "training" if settings.data.links is None else "linked training"
        raise SettingsError(
            f"optimisation.batch_size: {size} is more than the {len(anchors)} {kind} documents "
            f"({cache.counts.read} read, {cache.counts.too_short} too short, "
            f"{cache.counts.duplicates} near-duplicates, {len(held)} held out)"
        )
    if len(held) < 2 and (settings.run.patience or settings.run.keep_best):
        raise SettingsError(
            "run.patience and run.keep_best need held-out documents: raise data.held_out"
        )


def _open_head(settings: Settings, start: Start) -> tuple[MaskedLMHead | None, str | None]:
    if not settings.objective.mlm_factor:
        return None, None
    if start.tokenizer.mask_token_id is None:
        raise SettingsError("objective.mlm_weight: the tokenizer has no mask token; set it to 0")
    embeddings = start.encoder.backbone.get_input_embeddings()
    states = start.encoder.backbone.config.hidden_size
    if embeddings.embedding_dim != states:
        raise SettingsError(
            "objective.mlm_weight: the head predicts words by the model's token vectors; they have "
            f"{embeddings.embedding_dim} dimensions, but its states have {states}; set it to 0, "
            "with another view than mlm"
        )
    head = MaskedLMHead(embeddings)
    return head, "checkpoint" if head.adopt(start.head_weights) else "tied, fresh"
