"""Write checkpoints atomically, keep the best model, and go on only with a run's own settings."""

import contextlib
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from training.errors import CheckpointError, SettingsError
from training.processes import Precision
from training.settings import RunSettings, Settings
from training.trainer.validation import Validation

# Write checkpoints atomically.

_NAME = re.compile(r"step-(\d{8})\.pt")


def write(path: Path, state: dict[str, Any]) -> None:
    """Write a state as ``torch.save`` does. The file is complete or as it was before.

    Raises:
        CheckpointError: the disk is full or not writable.
    """
    draft = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    except (OSError, RuntimeError) as error:
        # before the draft goes, which filled the disk
        free = shutil.disk_usage(path.parent).free if path.parent.is_dir() else 0
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise CheckpointError(
            f"{path}: could not be written ({error}; {free / 1e6:.0f} MB free)"
        ) from error


class Checkpoints:
    """The checkpoints of a run, in a folder.

    The class writes a checkpoint under a temporary name, flushes it to the disk and renames it. A
    kill or a full disk never damages earlier checkpoints.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        """Keep the newest ``keep`` checkpoints in ``folder``."""
        self._folder = folder
        self._keep = keep

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""
        if not self._folder.is_dir():
            return []
        found = (_NAME.fullmatch(p.name) for p in self._folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Write the checkpoint of ``step`` and remove the oldest beyond the limit.

        Raises:
            CheckpointError: the disk is full or not writable. The message names the newest complete
                checkpoint.
        """
        path = self._path(step)
        try:
            write(path, state)
        except CheckpointError as error:
            past = self.steps()
            held = f"step {past[-1]} is the newest complete one" if past else "no other is there"
            remedy = "free space or correct the path, then repeat the command"
            raise CheckpointError(f"{error}; {held}; {remedy}") from error
        for old in self.steps()[: -self._keep]:
            self._path(old).unlink(missing_ok=True)
        return path

    def load(self, step: int, *, mapped: bool = False) -> dict[str, Any]:
        """Read the checkpoint of ``step``, tensors on the CPU.

        Args:
            step: of a complete checkpoint.
            mapped: leave the tensors in the file until they are used.

        Raises:
            CheckpointError: the file cannot be read.
        """
        path = self._path(step)
        try:
            state: dict[str, Any] = torch.load(
                path, map_location="cpu", weights_only=True, mmap=mapped
            )
        except (OSError, RuntimeError, EOFError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error})") from error
        return state

    def settings(self) -> dict[str, Any] | None:
        """``fixed_settings`` of the newest checkpoint; None without one.

        Raises:
            CheckpointError: it cannot be read.
        """
        steps = self.steps()
        if not steps:
            return None
        held: dict[str, Any] = json.loads(self.load(steps[-1], mapped=True)["settings"])
        return held

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}.pt"


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


# Settings that may change before a run resumes, because they do not change its course.
_FREE = {
    "run.checkpoint_every",
    "run.keep_checkpoints",
    "run.output",
    "run.resume",
    "run.tensorboard",
    "run.workers",
    "data.cache",
}


def fixed_settings(settings: Settings, cache: str, links: str | None = None) -> dict[str, Any]:
    """The settings that determine a run's course, as a flat mapping.

    Args:
        cache: name of the token cache, which identifies the documents.
        links: digest of their links.
    """
    dumped = json.loads(settings.model_dump_json())
    flat = {f"{s}.{k}": v for s, section in dumped.items() for k, v in section.items()}
    return {k: v for k, v in flat.items() if k not in _FREE} | {"cache": cache, "links": links}


def open_checkpoints(settings: Settings) -> Checkpoints:
    """The checkpoints of the run's output."""
    return Checkpoints(settings.run.output / "checkpoints", settings.run.keep_checkpoints)


def precision_to_use(settings: Settings) -> Precision | Literal["auto"]:
    """The setting; with ``auto`` an interrupted run goes on in the precision that it began with.

    Raises:
        CheckpointError: the newest checkpoint is unreadable.
    """
    wanted = settings.optimisation.precision
    if wanted != "auto" or not settings.run.resume:
        return wanted
    begun: Precision | None = (open_checkpoints(settings).settings() or {}).get(
        "optimisation.precision"
    )
    return begun or wanted


def check_output(settings: Settings, checkpoints: Checkpoints) -> None:
    """Refuse a folder with another run, before the documents are read.

    Raises:
        SettingsError: the folder has a run, and ``run.resume`` is false.
        CheckpointError: the newest checkpoint is unreadable or belongs to other settings.
    """
    output, steps = settings.run.output, checkpoints.steps()
    if steps and not settings.run.resume:
        raise SettingsError(
            f"run.output: {output} already holds a run (step {steps[-1]}); name another "
            "folder, or set run.resume"
        )
    held = checkpoints.settings()
    if held is not None:
        # what the documents and links are shows only when they are read
        check_settings(output, held, fixed_settings(settings, held["cache"], held.get("links")))


def check_settings(output: Path, held: dict[str, Any] | None, mine: dict[str, Any]) -> None:
    """Raise ``CheckpointError`` if the settings of a checkpoint differ from the run's."""
    different = [k for k in sorted({*mine, *held}) if mine.get(k) != held.get(k)] if held else []
    if held and different:
        shown = "; ".join(_said(k, held.get(k), mine.get(k)) for k in different)
        raise CheckpointError(
            f"{output}: its checkpoint belongs to other settings ({shown}); name another run.output"
        )


def _said(name: str, held: object, mine: object) -> str:
    if name == "cache":
        return "the documents, the tokenizer or how they are read changed"
    return f"{name} was {held!r}, is {mine!r}"
