"""How a training run ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training.evaluation.validation import Validation


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
