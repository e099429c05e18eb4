"""Check that a checkpoint belongs to the settings."""

import json
from pathlib import Path
from typing import Any

from training.errors import CheckpointError
from training.settings import Settings

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
