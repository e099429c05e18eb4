"""Check that a checkpoint belongs to the settings, before a run changes anything in its folder."""

import json
from pathlib import Path
from typing import Any, Literal

from training.errors import CheckpointError, SettingsError
from training.processes import Precision
from training.settings import Settings
from training.trainer.checkpoint import Checkpoints

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
    begun: Precision | None = (_newest(open_checkpoints(settings)) or {}).get(
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
    held = _newest(checkpoints)
    if held is not None:
        # what the documents and links are shows only when they are read
        check_settings(output, held, fixed_settings(settings, held["cache"], held.get("links")))


def check_newest(output: Path, checkpoints: Checkpoints, mine: dict[str, Any]) -> None:
    """Raise ``CheckpointError`` if the newest checkpoint's settings differ from the run's."""
    held = _newest(checkpoints)
    if held is not None:
        check_settings(output, held, mine)


def _newest(checkpoints: Checkpoints) -> dict[str, Any] | None:
    steps = checkpoints.steps()
    if not steps:
        return None
    held: dict[str, Any] = json.loads(checkpoints.load(steps[-1], mapped=True)["settings"])
    return held


def check_settings(output: Path, held: dict[str, Any], mine: dict[str, Any]) -> None:
    """Raise ``CheckpointError`` if the settings of a checkpoint differ from the run's."""
    different = [k for k in sorted({*mine, *held}) if mine.get(k) != held.get(k)]
    if different:
        shown = "; ".join(_said(k, held.get(k), mine.get(k)) for k in different)
        raise CheckpointError(
            f"{output}: its checkpoint belongs to other settings ({shown}); name another run.output"
        )


def _said(name: str, held: object, mine: object) -> str:
    if name == "cache":
        return "the documents, the tokenizer or how they are read changed"
    return f"{name} was {held!r}, is {mine!r}"
