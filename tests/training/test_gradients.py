"""Plain gradients, and cached, chunked and shared ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from torch.nn.functional import cosine_similarity, normalize

from tests.conftest import ONLY_NIGHTLY, free_port
from tests.training.conftest import start_process
from training.documents import open_cache
from training.encoder import open_start, open_teachers
from training.losses import MaskedLMHead, info_nce, nt_xent, pool_windows, similarity_loss
from training.processes import Processes
from training.settings import Settings
from training.trainer.gradients import BatchGradients, BatchLoss, seed_dropout
from training.trainer.preparation import Batch, Preparation

Gradients = dict[str, torch.Tensor]
MakeSettings = Callable[..., Settings]


class Bench:
    """An encoder, a head and one batch of eight documents."""

    def __init__(self, settings: Settings, processes: Processes | None = None) -> None:
        self.settings = settings
        self.processes = processes or Processes(cpu=True)
        start = open_start(settings.backbone)
        self.encoder = start.encoder.train()
        self.teachers = open_teachers(settings, start, self.processes.device)
        cache = open_cache(settings.data, start.tokenizer)
        torch.manual_seed(1)
        self.head: MaskedLMHead | None = None
        if settings.objective.mlm_factor:
            self.head = MaskedLMHead(self.encoder.backbone.get_input_embeddings())
        preparation = Preparation(
            cache,
            start.tokenizer,
            settings,
            rank=self.processes.rank,
            count=self.processes.count,
            chunk_tokens=settings.optimisation.chunk_tokens,
        )
        self.batch: Batch = preparation.batch(3, range(8))

    def gradients(
        self, *, cached: bool, reseed: Callable[[int, int, int], None] = seed_dropout
    ) -> tuple[BatchLoss, Gradients]:
        modules = [m for m in (self.encoder, self.head) if m is not None]
        for module in modules:
            module.zero_grad()
        loss = BatchGradients(
            self.encoder,
            self.head,
            self.settings.objective,
            self.processes,
            seed=5,
            cached=cached,
            teachers=self.teachers,
            reseed=reseed,
        ).accumulate(self.batch)
        parameters = [(n, p) for m in modules for n, p in m.named_parameters()]
        self.processes.sum_gradients(p for _, p in parameters)
        return loss, {n: p.grad.clone() for n, p in parameters if p.grad is not None}


def distance(first: Gradients, second: Gradients) -> float:
    """Norm of the difference, relative to the norm of the first."""
    assert first.keys() == second.keys()
    apart = sum(float((first[n] - second[n]).pow(2).sum()) for n in first)
    size = sum(float(first[n].pow(2).sum()) for n in first)
    return float((apart / size) ** 0.5)


# of 32 rows at most
CHUNKS = {"chunk_tokens": 96}
OBJECTIVES = [
    {"view": "docsplit", "mlm_weight": 0.0, "symmetric": True},
    {"view": "docsplit", "mlm_inputs": "shared"},
    {"view": "span+slice", "span_tokens": 16},
    {"view": "simcse", "teacher": [""], "mlm_weight": 0.0},
    {"view": "docsplit", "teacher": [""], "teacher_weight": 3.0, "windows": 3},
    {"view": "docsplit", "teacher": ["", "wide"], "teacher_match": "similarities", "windows": 3},
]
# the others have their parts
_BY_NIGHT = [
    {"view": "docsplit"},
    {"view": "docsplit", "windows": 3},
    {"view": "docsplit", "teacher": ["wide"], "teacher_match": "similarities", "windows": 3},
]


@pytest.fixture(
    params=[*OBJECTIVES, *(pytest.param(one, marks=ONLY_NIGHTLY) for one in _BY_NIGHT)], ids=str
)
def objective(request: pytest.FixtureRequest, teacher: Path, wide_teacher: Path) -> dict[str, Any]:
    asked: dict[str, Any] = request.param
    folders = {"": teacher, "wide": wide_teacher}
    return asked | {"teacher": [str(folders[name]) for name in asked.get("teacher", ())]}


def test_cached_gradients_equal_plain_ones_with_dropout(
    make_settings: MakeSettings, objective: dict[str, Any]
) -> None:
    bench = Bench(
        make_settings(objective=objective, backbone={"max_tokens": 16}, optimisation=CHUNKS)
    )
    assert len(bench.batch.chunks) >= 3
    plain_loss, plain = bench.gradients(cached=False)
    cached_loss, cached = bench.gradients(cached=True)
    assert distance(plain, cached) < 1e-5
    assert cached_loss.total == pytest.approx(plain_loss.total, rel=1e-6)

    # Control: without the replay of the random state the second encoding differs.
    calls = iter(range(10**6))

    def unrelated(seed: int, batch: int, chunk: int) -> None:
        seed_dropout(seed, batch, 1_000 + next(calls))

    _, wrong = bench.gradients(cached=True, reseed=unrelated)
    assert distance(plain, wrong) > 0.05


def test_chunked_gradients_equal_those_of_one_forward_pass(
    make_settings: MakeSettings, objective: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares with torch's differentiation of the whole loss, without dropout."""
    quiet = {"max_tokens": 16, "dropout": 0.0, "attention_dropout": 0.0}
    settings = make_settings(objective=objective, backbone=quiet, optimisation=CHUNKS)
    bench = Bench(settings)
    assert len(bench.batch.chunks) >= 3
    loss, found = bench.gradients(cached=False)
    monkeypatch.setattr(
        "training.trainer.preparation.plan_chunks", lambda lengths, *_: [list(range(len(lengths)))]
    )
    whole = Bench(settings)
    (chunk,) = whole.batch.chunks
    asked = settings.objective
    states, pooled = whole.encoder(chunk.input_ids, chunk.attention_mask)
    rows = torch.zeros_like(pooled).index_copy(0, chunk.rows, pooled)
    views = pool_windows(rows, whole.batch.row_view, whole.batch.row_weight, 16)
    if asked.contrastive == "nt_xent":
        total = nt_xent(views[:8], views[8:], asked.temperature)
    else:
        total = info_nce(views[:8], views[8:], asked.temperature, symmetric=asked.symmetric)
    if whole.teachers:
        plain = chunk.input_ids if chunk.plain_ids is None else chunk.plain_ids
        targets = []
        for teacher in whole.teachers:
            vectors = teacher.vectors(plain, chunk.attention_mask)
            rows = torch.zeros_like(vectors).index_copy(0, chunk.rows, vectors)
            targets.append(pool_windows(rows, whole.batch.row_view, whole.batch.row_weight, 16)[:8])
        if asked.teacher_match == "vectors":
            [target] = targets
            apart = torch.stack([1 - cosine_similarity(v, target).mean() for v in views.split(8)])
        else:
            cosines = torch.stack([normalize(t) @ normalize(t).T for t in targets]).mean(0)
            # vectors of these cosines
            target = torch.linalg.cholesky(cosines)
            apart = similarity_loss(views[:8], views[8:], target, asked.teacher_temperature)
        assert loss.teacher == pytest.approx(float(apart.detach().mean()), rel=1e-5)
        total = total + asked.teacher_weight * apart.mean()
    if whole.head is not None:
        if chunk.disguised_ids is not None:
            states, _ = whole.encoder(chunk.disguised_ids, chunk.attention_mask)
        logits = whole.head(states.flatten(0, 1)[chunk.positions])
        total = total + asked.mlm_weight * torch.nn.functional.cross_entropy(logits, chunk.labels)
    total.backward()
    modules = [m for m in (whole.encoder, whole.head) if m is not None]
    expected = {n: p.grad for m in modules for n, p in m.named_parameters() if p.grad is not None}
    assert distance(expected, found) < 1e-5
    assert loss.total == pytest.approx(float(total.detach()), rel=1e-5)

    # Control: without any one of its teachers the gradient differs.
    teachers = whole.teachers
    for taught in teachers:
        whole.teachers = [one for one in teachers if one is not taught]
        assert distance(expected, whole.gradients(cached=False)[1]) > 0.01


def test_masked_lm_without_contrast(make_settings: MakeSettings) -> None:
    bench = Bench(make_settings(objective={"view": "mlm"}))
    loss, gradients = bench.gradients(cached=False)
    assert loss.contrastive == 0
    assert loss.total == loss.mlm > 0
    assert bench.batch.views == 1
    assert distance(gradients, bench.gradients(cached=True)[1]) == 0


@pytest.mark.parametrize(("view", "passes"), [("mlm", 1), ("docsplit", 2)])
def test_masked_lm_reads_nothing_but_masked_copies(
    make_settings: MakeSettings, view: str, passes: int
) -> None:
    bench = Bench(make_settings(objective={"view": view}, optimisation=CHUNKS))
    read: list[torch.Tensor] = []
    bench.encoder.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    bench.gradients(cached=False)
    assert len(read) == passes * len(bench.batch.chunks)


def _worker(rank: int, port: str, settings: str, folder: str) -> None:
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (place | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}).items():
            patch.setenv(name, value)
        AcceleratorState._reset_state(reset_partial_state=True)
        processes = Processes(cpu=True)
    assert processes.count == 2
    # one process may prepare data for hours while the other waits
    assert dist.group.WORLD is not None
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert group.options._timeout > timedelta(days=1)
    bench = Bench(Settings.model_validate_json(settings), processes)
    for cached in (False, True):
        loss, gradients = bench.gradients(cached=cached)
        state = {"loss": loss.total, "chunks": len(bench.batch.chunks), "gradients": gradients}
        torch.save(state, Path(folder) / f"{rank}-{cached}.pt")
    processes.close()
    AcceleratorState._reset_state(reset_partial_state=True)


def test_two_processes_equal_one_with_the_whole_batch(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    """Over gloo with dropout: chunks have the same random state in every process."""
    settings = make_settings(objective={"symmetric": True}, optimisation={"chunk_tokens": 199})
    single = Bench(settings)
    chunks = single.batch.chunks
    loss, plain = single.gradients(cached=False)
    # Control: the part of one process gives another gradient.
    single.batch = Batch(**{**vars(single.batch), "chunks": chunks[::2]})
    assert distance(plain, single.gradients(cached=False)[1]) > 0.05

    # this process is the first of the two
    given = (str(free_port()), settings.model_dump_json(), str(tmp_path))
    second = start_process(_worker, 1, *given)
    try:
        _worker(0, *given)
        second.join()
        assert second.exitcode == 0
    finally:
        second.kill()
    for cached in (False, True):
        parts = [torch.load(tmp_path / f"{rank}-{cached}.pt") for rank in range(2)]
        assert sum(part["chunks"] for part in parts) == len(chunks)
        assert all(part["chunks"] for part in parts)
        for part in parts:
            assert part["loss"] == pytest.approx(loss.total, rel=1e-6)
            assert distance(plain, part["gradients"]) < 1e-5


def test_settings_round_trip_as_json(make_settings: MakeSettings) -> None:
    settings = make_settings()
    assert Settings.model_validate(json.loads(settings.model_dump_json())) == settings
