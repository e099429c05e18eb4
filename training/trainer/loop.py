"""A training run from settings to a folder."""

from __future__ import annotations

import json
import math
import resource
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from training.backbones.encoder import Start, open_start
from training.data.batches import BatchOrder
from training.data.build import open_cache
from training.data.cache import TokenCache
from training.data.specials import Specials
from training.errors import CheckpointError, DivergedError, SettingsError
from training.evaluation.embedding import embed_texts
from training.evaluation.validation import Validation, pick, validate
from training.losses.contrastive import chance
from training.losses.masked_lm import MaskedLMHead
from training.processes import Processes
from training.settings import Settings
from training.trainer.checkpoint import Checkpoints
from training.trainer.curve import Curve
from training.trainer.divergence import DivergenceWatch
from training.trainer.gradients import BatchGradients, BatchLoss
from training.trainer.interruption import Interruption
from training.trainer.output import save_model, write_record
from training.trainer.plot import plot_run
from training.trainer.preparation import Batch, Preparation
from training.trainer.progress import RunProgress
from training.trainer.schedule import adamw, learning_rate

MODEL = "model"
SETTINGS = "settings.json"
_CPU_CHUNK = 2_048
_ACCELERATOR_CHUNK = 65_536
# What may change between an interruption and its resumption without changing the course of the run.
_FREE = {
    "run.checkpoint_every",
    "run.keep_checkpoints",
    "run.output",
    "run.resume",
    "run.tensorboard",
    "run.workers",
    "data.cache",
}


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        step: optimiser steps taken.
        finished: false where it was interrupted; it goes on when called again.
        stopped_early: whether early stopping ended it.
        first: validation of the start weights; None without held-out documents.
        last: validation of the model that was written.
        model: its folder; None where the run was interrupted.
    """

    step: int
    finished: bool
    stopped_early: bool
    first: Validation | None
    last: Validation | None
    model: Path | None


class TrainingRun:
    """One run: opens everything, then ``run`` takes the steps."""

    def __init__(self, settings: Settings, processes: Processes | None = None) -> None:
        """Open data and start weights.

        Raises:
            TrainingError: settings, data, weights or a checkpoint that do not fit; says which.
        """
        self.settings = settings
        self.processes = processes or Processes(settings.optimisation.precision)
        self.output = settings.run.output
        self._started = time.monotonic()
        start = open_start(settings.backbone)
        self._progress_note = self._noter()
        self.cache = self._open_cache(start)
        self._open_documents()
        self._open_model(start)
        optimisation = settings.optimisation
        self._chunk_tokens = optimisation.chunk_tokens or (
            _CPU_CHUNK if self.processes.device.type == "cpu" else _ACCELERATOR_CHUNK
        )
        self._order = BatchOrder(
            self.train,
            self.cache.length,
            batch_size=optimisation.batch_size,
            group=optimisation.length_group,
            seed=settings.run.seed,
        )
        self._preparation = Preparation(
            self.cache,
            self.tokenizer,
            settings,
            rank=self.processes.rank,
            count=self.processes.count,
            chunk_tokens=self._chunk_tokens,
        )
        per_epoch = self._order.per_epoch / optimisation.accumulate
        self.total = optimisation.max_steps or max(1, math.ceil(optimisation.epochs * per_epoch))
        self._optimizer = adamw(self._modules, optimisation.weight_decay)
        kind = settings.objective.contrastive
        self._chance = chance(optimisation.batch_size, kind) if kind else None
        self._watch = DivergenceWatch(
            settings.run.divergence_window,
            (self._chance or 0.0)
            + (settings.objective.mlm_factor * math.log(self._preparation.specials.vocabulary)),
        )
        self._checkpoints = Checkpoints(self.output / "checkpoints", settings.run.keep_checkpoints)
        self._first: Validation | None = None
        self._latest: Validation | None = None
        self._best = -math.inf
        self._since_best = 0
        self._seen = {"documents": 0, "tokens": 0, "padded_tokens": 0, "cut_tokens": 0}

    def run(self, stop_after: int | None = None) -> RunResult:
        """Train to the end, or until a signal, or for ``stop_after`` more steps.

        SIGINT and SIGTERM end the run after the current step with a checkpoint; the same call
        later goes on from there.

        Raises:
            DivergedError: nothing is left to learn from; says what was seen.
            CheckpointError: a checkpoint cannot be written, or does not belong to these settings.
        """
        start = self._resume()
        stop = self.total if stop_after is None else min(self.total, start + stop_after)
        curve = None
        if self.processes.is_main:
            curve = Curve(self.output, tensorboard=self.settings.run.tensorboard, resume_at=start)
            self._write_settings()
        try:
            with Interruption() as interruption, self._progress(start) as progress:
                step, early = self._steps(start, stop, curve, progress, interruption)
        finally:
            if curve is not None:
                curve.close()
        finished = step == self.total or early
        last = self._finish(step, early) if finished else None
        return RunResult(
            step=step,
            finished=finished,
            stopped_early=early,
            first=self._first,
            last=last,
            model=self.output / MODEL if finished else None,
        )

    def _steps(
        self,
        start: int,
        stop: int,
        curve: Curve | None,
        progress: RunProgress,
        interruption: Interruption,
    ) -> tuple[int, bool]:
        run, optimisation = self.settings.run, self.settings.optimisation
        gradients = BatchGradients(
            self.encoder,
            self.head,
            self.settings.objective,
            self.processes,
            seed=run.seed,
            cached=optimisation.gradient_cache,
        )
        if start == 0:
            self._first = self._validate(0, curve, progress)
        self.encoder.train()
        batches = self._batches(start * optimisation.accumulate, stop * optimisation.accumulate)
        step = start
        with batches as prepared:
            for step in range(start + 1, stop + 1):
                record = self._step(step, gradients, prepared)
                if curve is not None:
                    curve.step(record)
                progress.step(record)
                early = False
                if step % run.evaluate_every == 0 or step == self.total:
                    self._latest = self._validate(step, curve, progress)
                    early = self._judge(self._latest)
                halt = self.processes.any(interruption.asked)
                if step % run.checkpoint_every == 0 or step == stop or early or halt:
                    self._save(step)
                if early:
                    progress.note(
                        f"stopped at step {step}: no better {run.metric} in {run.patience} "
                        "validations"
                    )
                    return step, True
                if halt:
                    progress.note(
                        f"interrupted at step {step}; the same command goes on from there"
                    )
                    break
        return step, False

    def _step(
        self, step: int, gradients: BatchGradients, prepared: Iterator[Batch]
    ) -> dict[str, float]:
        optimisation = self.settings.optimisation
        began = time.monotonic()
        rate = learning_rate(step - 1, self.total, optimisation.learning_rate, optimisation.warmup)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        losses: list[BatchLoss] = []
        batches: list[Batch] = []
        for _ in range(optimisation.accumulate):
            batch = next(prepared)
            batches.append(batch)
            losses.append(gradients.accumulate(batch, 1 / optimisation.accumulate))
        parameters = [p for m in self._modules for p in m.parameters()]
        self.processes.sum_gradients(parameters)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, optimisation.clip_norm))
        mean = {
            key: sum(getattr(loss, key) for loss in losses) / len(losses)
            for key in ("total", "contrastive", "mlm", "accuracy")
        }
        self._check(step, mean["total"], norm, rate, batches)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        counts = {
            "documents": sum(len(b.documents) for b in batches),
            "tokens": sum(b.tokens for b in batches),
            "padded_tokens": sum(b.padded for b in batches),
            "cut_tokens": sum(b.cut for b in batches),
        }
        for key, value in counts.items():
            self._seen[key] += value
        return {
            "step": step,
            "loss": mean["total"],
            "contrastive": mean["contrastive"],
            "mlm": mean["mlm"],
            "accuracy": mean["accuracy"],
            "learning_rate": rate,
            "gradient_norm": norm,
            **counts,
            "seconds": time.monotonic() - began,
        }

    def _check(
        self, step: int, loss: float, norm: float, rate: float, batches: Sequence[Batch]
    ) -> None:
        try:
            self._watch.check(
                step,
                loss,
                norm,
                rate,
                lambda: self.cache.names([d for b in batches for d in b.documents]),
            )
        except DivergedError as error:
            past = self._checkpoints.steps()
            held = f"step {past[-1]}" if past else "none yet"
            raise DivergedError(f"{error}. Last checkpoint: {held}") from None

    @contextmanager
    def _batches(self, first: int, last: int) -> Iterator[Iterator[Batch]]:
        workers = self.settings.run.workers
        if workers == 0:
            yield (self._preparation.batch(n, self._order[n]) for n in range(first, last))
            return
        pool = ThreadPoolExecutor(workers, thread_name_prefix="prepare")
        try:
            yield self._ahead(pool, first, last, workers + 1)
        finally:
            pool.shutdown(cancel_futures=True)

    def _ahead(
        self, pool: ThreadPoolExecutor, first: int, last: int, depth: int
    ) -> Iterator[Batch]:
        waiting: deque[Future[Batch]] = deque()
        for number in range(first, last):
            waiting.append(pool.submit(self._preparation.batch, number, self._order[number]))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    @property
    def specials(self) -> Specials:
        """The tokenizer's special tokens."""
        return self._preparation.specials

    def validation(self) -> Validation | None:
        """Validate the encoder as it is; None without held-out documents."""
        if len(self.held) < 2:
            return None
        return validate(
            self.cache,
            pick(self.held, self.settings.run.evaluate_documents),
            lambda texts: embed_texts(
                texts,
                self.encoder,
                self._preparation.specials,
                self.processes,
                max_tokens=self.settings.backbone.max_tokens,
                windows=self.settings.objective.windows,
                chunk_tokens=self._chunk_tokens,
            ),
        )

    def _validate(self, step: int, curve: Curve | None, progress: RunProgress) -> Validation | None:
        began = time.monotonic()
        found = self.validation()
        if found is None:
            return None
        seconds = time.monotonic() - began
        progress.validated(seconds)
        progress.note(
            f"step {step}: same-document discrimination {found.discrimination:.4f}, "
            f"MRR of halves {found.mrr:.4f} ({found.documents} held-out documents, {seconds:.0f} s)"
        )
        if curve is not None:
            curve.validation({"step": step, **asdict(found), "seconds": seconds})
        return found

    def _judge(self, found: Validation | None) -> bool:
        """Keep the best model; whether patience has run out."""
        run = self.settings.run
        if found is None:
            return False
        value = float(getattr(found, run.metric))
        if value > self._best:
            self._best, self._since_best = value, 0
            if run.keep_best and self.processes.is_main:
                self._save_model(self.output / "best")
            return False
        self._since_best += 1
        return 0 < run.patience <= self._since_best

    def _finish(self, step: int, early: bool) -> Validation | None:
        run = self.settings.run
        folder = self.output / MODEL
        last = self._latest
        if run.keep_best or last is None:
            self._restore_best()
            last = self.validation()
        if self.processes.is_main:
            self._save_model(folder)
            write_record(folder, self._record(step, early, last))
            shutil.copyfile(folder / "training.json", self.output / "training.json")
            plot_run(self.output, self._chance)
        self.processes.barrier()
        return last

    def _restore_best(self) -> None:
        from transformers import AutoModel

        self.processes.barrier()
        best = self.output / "best"
        if self.settings.run.keep_best and best.is_dir():
            held = AutoModel.from_pretrained(best, trust_remote_code=False)
            self.encoder.backbone.load_state_dict(held.state_dict())

    def _record(self, step: int, early: bool, last: Validation | None) -> dict[str, Any]:
        counts = self.cache.counts
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "settings": json.loads(self.settings.model_dump_json()),
            "objective": {
                "view": self.settings.objective.view,
                "contrastive_loss": self.settings.objective.contrastive,
                "mlm_weight": self.settings.objective.mlm_factor,
                "mlm_head": self._head_origin,
            },
            "data": {
                **asdict(counts),
                "training_documents": len(self.train),
                "held_out_documents": len(self.held),
                "cache": self.cache.root.name,
            },
            "seed": self.settings.run.seed,
            "steps": step,
            "stopped_early": early,
            "seen": self._seen,
            "processes": self.processes.count,
            "device": self._device_name(),
            "seconds": time.monotonic() - self._started,
            "peak_resident_bytes": peak,
            "metrics": {
                "before": asdict(self._first) if self._first else None,
                "after": asdict(last) if last else None,
            },
        }

    def _device_name(self) -> str:
        if self.processes.device.type == "cuda":
            return torch.cuda.get_device_name(self.processes.device)
        return str(self.processes.device)

    def _save_model(self, folder: Path) -> None:
        save_model(self.encoder, self.tokenizer, self.settings.backbone.max_tokens, folder)

    def _save(self, step: int) -> None:
        failure: CheckpointError | None = None
        if self.processes.is_main:
            state = {
                "settings": json.dumps(self._fixed_settings()),
                "encoder": self.encoder.state_dict(),
                "head": self.head.state_dict() if self.head is not None else None,
                "optimizer": self._optimizer.state_dict(),
                "watch": self._watch.state(),
                "first": asdict(self._first) if self._first else None,
                "best": self._best,
                "since_best": self._since_best,
                "seen": dict(self._seen),
            }
            try:
                self._checkpoints.save(step, state)
            except CheckpointError as error:
                failure = error
        if self.processes.any(failure is not None):
            raise failure or CheckpointError("the main process could not write its checkpoint")

    def _resume(self) -> int:
        steps = self._checkpoints.steps()
        if not steps:
            return 0
        if not self.settings.run.resume:
            raise SettingsError(
                f"run.output: {self.output} holds a run already (step {steps[-1]}); name another "
                "folder, or set run.resume"
            )
        state = self._checkpoints.load(steps[-1])
        self._compare(json.loads(state["settings"]))
        self.encoder.load_state_dict(state["encoder"])
        if self.head is not None:
            self.head.load_state_dict(state["head"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._watch.restore(state["watch"])
        self._first = Validation(**state["first"]) if state["first"] else None
        self._best, self._since_best = state["best"], state["since_best"]
        self._seen = state["seen"]
        return steps[-1]

    def _fixed_settings(self) -> dict[str, Any]:
        """What shapes the run's course, flat."""
        dumped = json.loads(self.settings.model_dump_json())
        flat = {f"{s}.{k}": v for s, section in dumped.items() for k, v in section.items()}
        return {k: v for k, v in flat.items() if k not in _FREE} | {"cache": self.cache.root.name}

    def _compare(self, held: dict[str, Any]) -> None:
        mine = self._fixed_settings()
        different = [k for k in sorted({*mine, *held}) if mine.get(k) != held.get(k)]
        if different:
            shown = "; ".join(f"{k} was {held.get(k)!r}, is {mine.get(k)!r}" for k in different)
            raise CheckpointError(
                f"{self.output}: its checkpoint belongs to other settings ({shown}); name another "
                "run.output"
            )

    def _write_settings(self) -> None:
        text = self.settings.model_dump_json(indent=2)
        (self.output / SETTINGS).write_text(text + "\n", encoding="utf-8")

    def _open_cache(self, start: Start) -> TokenCache:
        data = self.settings.data
        if not self.processes.is_main:
            self.processes.barrier()
            return open_cache(data, start.tokenizer)
        try:
            return open_cache(data, start.tokenizer, self._progress_note)
        finally:
            self.processes.barrier()

    def _noter(self) -> Any:
        from rich.console import Console

        console = Console(stderr=True, quiet=not self.processes.is_main, highlight=False)
        last = [time.monotonic()]

        def note(count: int, what: str) -> None:
            now = time.monotonic()
            if now - last[0] >= 2:
                last[0] = now
                console.print(f"{what}: {count:,} documents read", markup=False)

        return note

    def _open_documents(self) -> None:
        data, run = self.settings.data, self.settings.run
        self.train, self.held = self.cache.select(data.held_out)
        size = self.settings.optimisation.batch_size
        if len(self.train) < size:
            raise SettingsError(
                f"optimisation.batch_size: {size} is more than the {len(self.train)} documents "
                f"there are to train on ({self.cache.counts.read} read, "
                f"{self.cache.counts.too_short} too short, {self.cache.counts.duplicates} "
                f"near-duplicates, {len(self.held)} held out)"
            )
        if len(self.held) < 2 and (run.patience or run.keep_best):
            raise SettingsError(
                "run.patience and run.keep_best need held-out documents: raise data.held_out"
            )

    def _open_model(self, start: Start) -> None:
        device = self.processes.device
        self.tokenizer = start.tokenizer
        self.encoder = start.encoder.to(device)
        self.head: MaskedLMHead | None = None
        self._head_origin: str | None = None
        if self.settings.objective.mlm_factor:
            if start.tokenizer.mask_token_id is None:
                raise SettingsError(
                    "objective.mlm_weight: the tokenizer has no mask token; set it to 0"
                )
            self.head = MaskedLMHead(self.encoder.backbone.get_input_embeddings())
            adopted = self.head.adopt(start.head_weights)
            self._head_origin = "checkpoint" if adopted else "tied, fresh"
            self.head.to(device)
        self._modules: list[torch.nn.Module] = [
            m for m in (self.encoder, self.head) if m is not None
        ]

    def _progress(self, start: int) -> RunProgress:
        return RunProgress(
            self.total,
            start,
            self.settings.run.evaluate_every,
            enabled=self.processes.is_main,
        )
