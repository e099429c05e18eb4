"""Run a training from settings and write its folder."""

import json
import math
import shutil
import signal
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from export.progress import RunProgress
from training.batches import chunk_tokens
from training.errors import CheckpointError, DivergedError
from training.losses import chance
from training.processes import Processes
from training.settings import Settings
from training.trainer.checkpoint import (
    BestModel,
    check_output,
    check_settings,
    fixed_settings,
    open_checkpoints,
    precision_to_use,
)
from training.trainer.gradients import BatchGradients, BatchLoss
from training.trainer.opening import (
    check_negatives,
    open_negatives,
    open_neighbourhood,
    open_order,
    open_run,
)
from training.trainer.output import Curve, plot_run, run_record, save_result, write_record
from training.trainer.preparation import Batch, Preparation, prefetch
from training.trainer.validation import Validation, embed_texts, pick, validate

# The outcome of a training run.


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run.

    Attributes:
        step: number of optimiser steps.
        finished: false after an interruption; another call continues the run.
        stopped_early: whether early stopping ended the run.
        first: validation of the start weights; None without held-out documents.
        last: validation of the written model.
        model: folder of the model; None after an interruption.
    """

    step: int
    finished: bool
    stopped_early: bool
    first: Validation | None
    last: Validation | None
    model: Path | None


def learning_rate(step: int, total: int, peak: float, warmup: float) -> float:
    """Linear rise during the first share ``warmup`` of the steps, then linear descent to zero.

    Args:
        step: number of the next step, from 0.
        total: steps of the run.
        peak: highest learning rate.
        warmup: share of the steps.
    """
    climb = round(warmup * total)
    if step < climb:
        return peak * (step + 1) / climb
    return peak * max(0.0, (total - step) / max(1, total - climb))


def adamw(modules: Iterable[nn.Module], weight_decay: float) -> torch.optim.AdamW:
    """AdamW whose weight decay excludes biases and layer norms."""
    parameters = {id(p): p for m in modules for p in m.parameters() if p.requires_grad}
    matrices = [p for p in parameters.values() if p.dim() > 1]
    others = [p for p in parameters.values() if p.dim() <= 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=0.0,
        fused=True,
    )


class Interruption:
    """SIGINT and SIGTERM request a stop after the current step."""

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        """Start without a request."""
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruption":
        """Handle the signals. Only the main thread can do so; other threads do nothing."""
        if threading.current_thread() is threading.main_thread():
            for number in self._SIGNALS:
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the former handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        sys.stderr.write("\nstopping after this step; interrupt again to stop at once\n")


class DivergenceWatch:
    """Raises when the loss or the gradient is not finite, or the loss rises back towards chance.

    The check compares the median of the last ``window`` losses with the lowest such median of the
    run. A rise by half the difference between that minimum and chance is a collapse, not noise.
    """

    def __init__(self, window: int, chance: float) -> None:
        """Watch medians over ``window`` steps.

        Args:
            window: steps.
            chance: loss of an encoder that gives every text the same vector.
        """
        self._recent: deque[float] = deque(maxlen=window)
        self._lowest = math.inf
        self._chance = chance

    def check(
        self,
        step: int,
        loss: float,
        gradient_norm: float,
        learning_rate: float,
        documents: Callable[[], Sequence[str]],
    ) -> None:
        """Check a step.

        Args:
            step: number of the step.
            loss: the minimised loss.
            gradient_norm: L2 norm before clipping.
            learning_rate: learning rate of the step.
            documents: returns the ids of the step's documents; called only when needed.

        Raises:
            DivergedError: the run has diverged. The message gives the figures and the documents.
        """
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            past = ", ".join(f"{x:.4f}" for x in list(self._recent)[-5:]) or "none"
            names = documents()
            shown = ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
            raise DivergedError(
                f"step {step}: loss {loss}, gradient norm {gradient_norm}, learning rate "
                f"{learning_rate:.3g}; losses before: {past}; documents of the step: {shown}. Try "
                "a lower optimisation.learning_rate or precision fp32"
            )
        self._recent.append(loss)
        if len(self._recent) < (self._recent.maxlen or 0):
            return
        median = statistics.median(self._recent)
        self._lowest = min(self._lowest, median)
        bound = self._lowest + max(0.5 * (self._chance - self._lowest), 0.1 * self._chance)
        if median > bound:
            raise DivergedError(
                f"step {step}: the median loss of the last {len(self._recent)} steps is "
                f"{median:.4f}, the lowest so far was {self._lowest:.4f}, chance is "
                f"{self._chance:.4f}; the run has diverged. Try a lower "
                "optimisation.learning_rate or a longer optimisation.warmup"
            )

    def state(self) -> dict[str, object]:
        """The state for a checkpoint."""
        return {"recent": list(self._recent), "lowest": self._lowest}

    def restore(self, state: dict[str, object]) -> None:
        """Continue from ``state``."""
        self._recent.clear()
        self._recent.extend(state["recent"])  # type: ignore[arg-type]
        self._lowest = float(state["lowest"])  # type: ignore[arg-type]


MODEL = "model"


class TrainingRun:
    """One run. The constructor opens data and weights; ``run`` trains."""

    def __init__(self, settings: Settings, processes: Processes | None = None) -> None:
        """Open data and start weights.

        Raises:
            TrainingError: settings, data, weights or a checkpoint do not fit. The message says
                which.
        """
        self.processes = processes or Processes(precision_to_use(settings))
        self.settings = settings = settings.in_precision(self.processes.precision)
        self.output = settings.run.output
        self._started = time.monotonic()
        self._checkpoints = open_checkpoints(settings)
        check_output(settings, self._checkpoints)
        opened = self._opened = open_run(settings, self.processes)
        self.cache, self.train, self.held = opened.cache, opened.train, opened.held
        self.tokenizer, self.encoder, self.head = opened.tokenizer, opened.encoder, opened.head
        self._modules = opened.modules
        links = None if opened.graph is None else opened.graph.digest
        self._fixed = fixed_settings(settings, self.cache.root.name, links)
        # vectors and clusters of other documents would replace those of the run
        check_settings(self.output, self._checkpoints.settings(), self._fixed)
        optimisation = settings.optimisation
        self._chunk_tokens = optimisation.chunk_tokens or chunk_tokens(
            self.processes.device, self.encoder.backbone.config
        )
        neighbourhood = open_neighbourhood(settings, opened, self.processes, self._chunk_tokens)
        self._order = open_order(settings, opened, neighbourhood)
        check_negatives(settings, self._order, neighbourhood, self.processes)
        negatives = open_negatives(settings, opened, neighbourhood, self.processes)
        self.preparation = Preparation(
            self.cache,
            self.tokenizer,
            settings,
            rank=self.processes.rank,
            count=self.processes.count,
            chunk_tokens=self._chunk_tokens,
            neighbourhood=neighbourhood,
            graph=opened.graph,
            negatives=negatives,
        )
        per_epoch = self._order.per_epoch / optimisation.accumulate
        self.total = optimisation.max_steps or max(1, math.ceil(optimisation.epochs * per_epoch))
        self._optimizer = adamw(self._modules, optimisation.weight_decay)
        self._chance = chance(settings.objective, optimisation.batch_size)
        self._watch = DivergenceWatch(
            settings.run.divergence_window,
            (self._chance or 0.0)
            + (settings.objective.mlm_factor * math.log(self.preparation.specials.vocabulary)),
        )
        self._first: Validation | None = None
        self._latest: Validation | None = None
        self._best = BestModel(
            settings.run,
            self.encoder.backbone,
            self.output / "best.pt",
            writes=self.processes.is_main,
        )
        self._seen = {"documents": 0, "tokens": 0, "padded_tokens": 0, "cut_tokens": 0}

    def run(self, stop_after: int | None = None) -> RunResult:
        """Train to the end, until a signal, or for ``stop_after`` more steps.

        On SIGINT or SIGTERM the run writes a checkpoint after the current step and ends. The same
        call later continues from there.

        Raises:
            DivergedError: the run has diverged. The message gives the figures.
            CheckpointError: a checkpoint cannot be written, or does not belong to these settings.
        """
        start = self._resume()
        stop = self.total if stop_after is None else min(self.total, start + stop_after)
        if self._best.stopped:
            stop = start
        curve = None
        if self.processes.is_main:
            curve = Curve(self.output, tensorboard=self.settings.run.tensorboard, resume_at=start)
            written = self.settings.model_dump_json(indent=2) + "\n"
            (self.output / "settings.json").write_text(written, encoding="utf-8")
        shown = RunProgress(
            self.total,
            start,
            self.settings.run.evaluate_every,
            enabled=self.processes.is_main,
        )
        try:
            with Interruption() as interruption, shown as progress:
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
            teachers=self._opened.teachers,
        )
        if start == 0:
            self._first = self._validate(0, curve, progress)
            self._best.judge(self._first)
        self.encoder.train()
        batches = prefetch(
            lambda number: self.preparation.batch(number, self._order[number]),
            start * optimisation.accumulate,
            stop * optimisation.accumulate,
            run.workers,
        )
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
                    early = self._best.judge(self._latest)
                halt = self.processes.any(interruption.asked)
                if step % run.checkpoint_every == 0 or step == stop or early or halt:
                    self._save(step)
                if early or step == self.total:
                    for line in self._best.notes(step):
                        progress.note(line)
                    return step, early
                if halt:
                    progress.note(f"interrupted at step {step}; to continue, run the same command")
                    break
        return step, self._best.stopped

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
            for key in ("total", "contrastive", "teacher", "mlm", "accuracy")
        }
        # the distance to a teacher has no value by chance, and varies with the documents of a batch
        weight = self.settings.objective.teacher_weight
        self._check(step, mean["total"] - weight * mean["teacher"], norm, rate, batches)
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
            "loss": mean.pop("total"),
            **mean,
            "learning_rate": rate,
            "gradient_norm": norm,
            **counts,
            "left_out_pairs": sum(b.left_out_share for b in batches) / len(batches),
            "seconds": time.monotonic() - began,
        }

    def _check(
        self, step: int, loss: float, norm: float, rate: float, batches: Sequence[Batch]
    ) -> None:
        def names() -> list[str]:
            return self.cache.names([d for b in batches for d in b.documents])

        try:
            self._watch.check(step, loss, norm, rate, names)
        except DivergedError as error:
            past = self._checkpoints.steps()
            held = f"step {past[-1]}" if past else "none yet"
            raise DivergedError(f"{error}. Last checkpoint: {held}") from None

    def validation(self) -> Validation | None:
        """Validate the current encoder; None without held-out documents."""
        if len(self.held) < 2:
            return None
        return validate(
            self.cache,
            pick(self.held, self.settings.run.evaluate_documents),
            lambda texts: embed_texts(
                texts,
                self.encoder,
                self.preparation.specials,
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

    def _finish(self, step: int, early: bool) -> Validation | None:
        run = self.settings.run
        folder = self.output / MODEL
        last = self._latest
        if run.keep_best or last is None:
            self.processes.barrier()
            self._best.restore()
            last = self.validation()
        if self.processes.is_main:
            save_result(self.encoder, self.tokenizer, self.settings.backbone, folder)
            record = run_record(
                self.settings,
                self._opened,
                steps=step,
                stopped_early=early,
                seen=self._seen,
                processes=self.processes.count,
                device=self.processes.device,
                seconds=time.monotonic() - self._started,
                before=self._first,
                after=last,
            )
            how = f"trained on {len(self.train)} documents of {Path(self.settings.data.path).name}"
            write_record(folder, [self.settings.backbone.path], how, record)
            shutil.copyfile(folder / "training.json", self.output / "training.json")
            plot_run(self.output, self._chance)
        self.processes.barrier()
        return last

    def _save(self, step: int) -> None:
        failure: CheckpointError | None = None
        if self.processes.is_main:
            state = {
                "settings": json.dumps(self._fixed),
                "encoder": self.encoder.state_dict(),
                "head": self.head.state_dict() if self.head is not None else None,
                "optimizer": self._optimizer.state_dict(),
                "watch": self._watch.state(),
                "first": asdict(self._first) if self._first else None,
                **self._best.state(),
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
        state = self._checkpoints.load(steps[-1])
        check_settings(self.output, json.loads(state["settings"]), self._fixed)
        self.encoder.load_state_dict(state["encoder"])
        if self.head is not None:
            self.head.load_state_dict(state["head"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._watch.restore(state["watch"])
        self._first = Validation(**state["first"]) if state["first"] else None
        self._best.resume(state)
        self._seen = state["seen"]
        return steps[-1]
