"""Open documents, encoder, masked-LM head and order before the first step of a run."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from export.progress import Progress
from training.batches import BatchOrder, ClusterOrder, Neighbourhood
from training.documents import open_cache
from training.encoder import Encoder, Start, StaticBackbone, Teacher, open_start, open_teachers
from training.errors import SettingsError
from training.links import HardNegatives, LinkGraph, made_from, mine, open_graph
from training.losses import MaskedLMHead
from training.processes import Processes
from training.settings import Settings
from training.tokens import Numbers, Specials, TokenCache
from training.trainer.checkpoint import fixed_settings
from training.trainer.validation import embed_texts

# Open documents, encoder and masked-LM head before the first step of a run.


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
        with Progress(Console(stderr=True, highlight=False)) as progress:
            return open_cache(
                settings.data,
                start.tokenizer,
                lambda count, what: progress.report(
                    what, words=f"{what}: {count:,} documents read"
                ),
            )
    finally:
        processes.barrier()


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


NEIGHBOURHOOD = "neighbourhood.npz"
NEGATIVES = "hard-negatives.npz"
_BLOCKS = "neighbourhood-vectors"
_AT_ONCE = 256
_CHECKED = 8


Order = BatchOrder | ClusterOrder


def open_order(settings: Settings, opened: Opened, neighbourhood: Neighbourhood | None) -> Order:
    """The order that the settings ask for."""
    optimisation = settings.optimisation
    if optimisation.cluster_size and neighbourhood is not None:
        return ClusterOrder(
            neighbourhood, batch_size=optimisation.batch_size, seed=settings.run.seed
        )
    return BatchOrder(
        opened.anchors,
        opened.cache.length,
        batch_size=optimisation.batch_size,
        group=optimisation.length_group,
        seed=settings.run.seed,
    )


def open_neighbourhood(
    settings: Settings, opened: Opened, processes: Processes, chunk_tokens: int
) -> Neighbourhood | None:
    """The start weights' vectors and clusters, if the settings need them.

    The run's folder keeps them, so that an interrupted run goes on with the same batches. It keeps
    each block of vectors too, until all are there.
    """
    objective = settings.objective
    if not (
        settings.optimisation.cluster_size
        or objective.negatives_below < 1
        or objective.hard_negatives
    ):
        return None
    path = settings.run.output / NEIGHBOURHOOD
    fixed = fixed_settings(settings, opened.cache.root.name)
    made_from = json.dumps({key: fixed[key] for key in sorted(fixed) if _decides(key)})
    if processes.any(not path.exists() or Neighbourhood.load(path).made_from != made_from):
        digest = hashlib.sha256(made_from.encode()).hexdigest()[:16]
        blocks = settings.run.output / f"{_BLOCKS}-{digest}"
        vectors = _embed(settings, opened, processes, chunk_tokens, blocks)
        if processes.is_main:
            path.parent.mkdir(parents=True, exist_ok=True)
            Neighbourhood.of(
                opened.train,
                vectors,
                size=settings.optimisation.cluster_size,
                seed=settings.run.seed,
                made_from=made_from,
            ).save(path)
            shutil.rmtree(blocks)
    processes.barrier()
    return Neighbourhood.load(path)


def check_negatives(
    settings: Settings, order: Order, neighbourhood: Neighbourhood | None, processes: Processes
) -> None:
    """Say which share of the pairs ``negatives_below`` leaves out, by the first batches.

    Raises:
        SettingsError: it leaves out all, so that the contrastive loss would teach nothing.
    """
    below = settings.objective.negatives_below
    if neighbourhood is None or below == 1 or settings.objective.contrastive is None:
        return
    cosines = []
    for number in range(min(order.per_epoch, _CHECKED)):
        batch = np.asarray(order[number])
        found = neighbourhood.cosines(batch, batch)
        cosines.append(found[~np.eye(len(batch), dtype=np.bool_)])
    pairs = np.concatenate(cosines)
    share = float((pairs >= below).mean())
    if share == 1:
        raise SettingsError(
            f"objective.negatives_below: {below:g} leaves no negatives, since the start weights' "
            f"cosines of the pairs in the first batches are {pairs.min():.3f} to "
            f"{pairs.max():.3f}; raise it to a value between them, or leave it out"
        )
    console = Console(stderr=True, highlight=False, quiet=not processes.is_main)
    console.print(
        f"objective.negatives_below leaves out {share:.1%} of the pairs in the first batches",
        markup=False,
        soft_wrap=True,
    )


def open_negatives(
    settings: Settings, opened: Opened, neighbourhood: Neighbourhood | None, processes: Processes
) -> HardNegatives | None:
    """The hard negatives of linked documents, if the settings ask for them; kept in the run's
    folder.

    Raises:
        SettingsError: no document has any.
    """
    if not settings.objective.hard_negatives or opened.graph is None or neighbourhood is None:
        return None
    path = settings.run.output / NEGATIVES
    wanted = made_from(opened.graph, neighbourhood)
    absent = processes.any(not path.exists() or HardNegatives.load(path).made_from != wanted)
    if absent and processes.is_main:
        mine(opened.cache, opened.graph, neighbourhood).save(path)
    processes.barrier()
    found = HardNegatives.load(path)
    if (found.negatives < 0).all():
        raise SettingsError(
            f"objective.hard_negatives: among {len(opened.train)} training documents none has "
            "neighbours that are far enough; leave it out"
        )
    return found


def _decides(setting: str) -> bool:
    """Whether vectors or clusters depend on a setting."""
    room, _, name = setting.partition(".")
    if room == "backbone":
        return "dropout" not in name
    return setting in {
        "cache",
        "data.held_out",
        "objective.windows",
        "optimisation.cluster_size",
        "optimisation.precision",
        "run.seed",
    }


def _embed(
    settings: Settings, opened: Opened, processes: Processes, chunk_tokens: int, folder: Path
) -> npt.NDArray[np.float32]:
    """Vectors of the training documents; the folder has those of an interrupted run."""
    specials = Specials.of(opened.tokenizer)
    folder.mkdir(parents=True, exist_ok=True)
    count = len(opened.train)
    progress = Progress(Console(quiet=not processes.is_main, highlight=False))
    files = []
    with progress.counted(f"start weights: embedding {count} texts", count) as advance:
        for start in range(0, count, _AT_ONCE):
            numbers = opened.train[start : start + _AT_ONCE]
            files.append(folder / f"{start}.npy")
            if processes.any(not files[-1].exists()):
                vectors = embed_texts(
                    [opened.cache.sentences(int(number)) for number in numbers],
                    opened.encoder,
                    specials,
                    processes,
                    max_tokens=settings.backbone.max_tokens,
                    windows=settings.objective.windows,
                    chunk_tokens=chunk_tokens,
                )
                if processes.is_main:
                    partial = files[-1].with_suffix(".partial.npy")
                    np.save(partial, vectors.numpy())
                    partial.replace(files[-1])
            advance(len(numbers))
    processes.barrier()
    return np.concatenate([np.load(file) for file in files])
