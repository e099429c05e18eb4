"""Keep the best model of a run, and decide on early stopping."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training.errors import CheckpointError
from training.evaluation.validation import Validation
from training.settings import RunSettings
from training.trainer.checkpoint import write


class BestModel:
    """Follows a run's validations.

    Attributes:
        stopped: whether patience has run out.
        first: whether no model was better than the first, that of the start weights.

    Args:
        settings: ``metric``, ``patience``, ``keep_best``.
        backbone: the trained model.
        path: the file of the best weights with ``keep_best``.
        writes: whether this process writes the file.
    """

    def __init__(
        self, settings: RunSettings, backbone: nn.Module, path: Path, *, writes: bool
    ) -> None:
        self._settings, self._backbone, self._path = settings, backbone, path
        self._writes = writes
        self._value = -math.inf
        self._since = 0
        self.stopped = self.first = False

    def judge(self, found: Validation | None) -> bool:
        """Keep the model if it is the best. Returns ``stopped``.

        Raises:
            CheckpointError: the disk is full or not writable.
        """
        if found is None:
            return False
        value = float(getattr(found, self._settings.metric))
        if value > self._value:
            self.first = self._value == -math.inf
            self._value, self._since = value, 0
            if self._settings.keep_best and self._writes:
                write(self._path, self._backbone.state_dict())
            return False
        self._since += 1
        self.stopped = 0 < self._settings.patience <= self._since
        return self.stopped

    def restore(self) -> None:
        """Load the best weights, if any were kept."""
        if self._settings.keep_best and self._path.is_file():
            held = torch.load(self._path, map_location="cpu", weights_only=True)
            self._backbone.load_state_dict(held)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {
            "best": self._value,
            "best_is_first": self.first,
            "since_best": self._since,
            "stopped": self.stopped,
        }

    def notes(self, step: int) -> list[str]:
        """What the user should know at the end of a run of ``step`` steps."""
        settings, said = self._settings, []
        if self.stopped:
            said.append(
                f"stopped at step {step}: {settings.metric} did not improve in "
                f"{settings.patience} validations"
            )
        if self.first and settings.keep_best:
            said.append(
                "no validation was better than that of the start weights, so the model has these"
            )
        return said

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from the ``state`` of a checkpoint.

        Raises:
            CheckpointError: the file of the best weights is missing.
        """
        if self._settings.keep_best and state["best"] > -math.inf and not self._path.is_file():
            raise CheckpointError(
                f"{self._path} is missing, which holds the best model so far; put it back, or name "
                "another run.output"
            )
        self._value, self._since = state["best"], state["since_best"]
        # former checkpoints do not say these
        self.stopped = state.get("stopped", False)
        self.first = state.get("best_is_first", False)
