"""Keep the best model of a run, and decide on early stopping."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from training.evaluation.validation import Validation
from training.settings import RunSettings


class BestModel:
    """Follows a run's validations.

    Args:
        settings: ``metric``, ``patience``, ``keep_best``.
        folder: the folder of the best model with ``keep_best``.
        save: writes the current model to a folder, only on the main process.
    """

    def __init__(self, settings: RunSettings, folder: Path, save: Callable[[Path], None]) -> None:
        self._settings, self._folder, self._save = settings, folder, save
        self._value = -math.inf
        self._since = 0

    def judge(self, found: Validation | None) -> bool:
        """Keep the model if it is the best. Returns whether patience has run out."""
        if found is None:
            return False
        value = float(getattr(found, self._settings.metric))
        if value > self._value:
            self._value, self._since = value, 0
            if self._settings.keep_best:
                self._save(self._folder)
            return False
        self._since += 1
        return 0 < self._settings.patience <= self._since

    def restore(self, backbone: nn.Module) -> None:
        """Load the weights of the best model, if one was kept, into ``backbone``."""
        from transformers import AutoModel

        if self._settings.keep_best and self._folder.is_dir():
            held = AutoModel.from_pretrained(self._folder, trust_remote_code=False)
            backbone.load_state_dict(held.state_dict())

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"best": self._value, "since_best": self._since}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from the ``state`` of a checkpoint."""
        self._value, self._since = state["best"], state["since_best"]
