"""Results and their files."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

FOLDER = "results"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(_Strict):
    """A number.

    Attributes:
        value: the number; with several draws, their mean.
        deviation: standard deviation over the draws.
    """

    value: float
    deviation: float | None = None


class Series(_Strict):
    """A curve: ``y`` and its deviation over ``x``, numbers or names."""

    x: list[float] | list[str]
    y: list[float]
    deviation: list[float] | None = None


class Items(_Strict):
    """The outcomes whose mean is a figure, so that two encoders can be compared item by item.

    Attributes:
        digest: of the items and of all that their outcomes depend on besides the encoder. Outcomes
            may be compared only if it is the same.
        outcomes: of each document, query or pair, by the name of the figure.
        draws: of each draw of training examples over all items, by the name of the figure; empty
            if there is nothing to draw.
    """

    digest: str
    outcomes: dict[str, list[float]]
    draws: dict[str, list[float]] = Field(default_factory=dict)


class Measured(_Strict):
    """The measurements of a task.

    Attributes:
        figures: numbers by the name of the task's column.
        series: curves by name.
        samples: values whose distribution the report plots.
        counts: number of documents, pairs or queries.
        items: the outcomes behind the figures; None for a task without, and in results of versions
            that kept none.
    """

    figures: dict[str, Figure]
    series: dict[str, Series] = Field(default_factory=dict)
    samples: dict[str, list[float]] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    items: Items | None = None


class Result(_Strict):
    """The measurements of a task for an encoder on a set.

    Attributes:
        key: digest of everything that the numbers depend on. Another key means another
            measurement.
        seconds_per_1000_words: time to embed, the median over groups of texts so far.
    """

    task: str
    data: str
    encoder: str
    kind: str
    revision: str
    details: dict[str, str]
    key: str
    left_out: int
    measured: Measured
    seconds_per_1000_words: float | None


def key(*facts: object) -> str:
    """Digest of facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def path_of(out: Path, task: str, data: str, encoder: str) -> Path:
    """The file of a result; encoders of different names have different files."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", encoder)
    if name != encoder:
        name += f"-{key(encoder)[:8]}"
    return out / FOLDER / name / f"{task}-{data}.json"


def read(path: Path) -> Result | None:
    """A result; None if the file does not exist or this version cannot read it."""
    try:
        return Result.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def write(path: Path, result: Result) -> None:
    """Write a result atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(result.model_dump_json() + "\n", encoding="utf-8")
    draft.replace(path)


def every(out: Path) -> Iterator[Result]:
    """All results in a folder and its subfolders, by path."""
    found: dict[tuple[str, str, str], Result] = {}
    for path in sorted((out / FOLDER).glob("*/*.json")):
        result = read(path)
        if result is None:
            continue
        place = result.task, result.data, result.encoder
        # former versions wrote some results to other files
        if place not in found or path == path_of(out, *place):
            found[place] = result
    yield from found.values()
