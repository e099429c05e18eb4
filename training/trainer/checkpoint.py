"""Write checkpoints atomically."""

import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch

from training.errors import CheckpointError

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

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}.pt"
