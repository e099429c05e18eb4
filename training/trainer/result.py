"""The outcome of a training run."""

from dataclasses import dataclass
from pathlib import Path

from training.evaluation.validation import Validation


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
