"""The interface of a task, its results, and their files."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from docsplit.corpora.fields import DataError
from docsplit.corpora.sets import AnySet
from training.evaluation.encoders import Reading, Representation
from training.evaluation.probes import Schedule

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


# the spaCy pipeline that tags parts of speech
DEFAULT_MODEL = "en_core_web_sm"
_DIGITS = 5


class UnfitError(DataError):
    """A task cannot use a set. The message says what the set lacks."""


@dataclass(frozen=True)
class Options:
    """Options of the protocols on the command line.

    Attributes:
        seed: seed of every draw.
        draws: repetitions of few-shot and of the split of linked documents.
        shots: examples of each class in few-shot.
        epochs: epochs of a probe on full data.
        steps: minimum steps of a probe.
        copies: numbers of copies of a text in the elongation attack, ascending.
        sample: number of documents for tasks without labels.
        reading: how to read documents, ``whole`` or ``first``, unless a task compares both.
        spacy_model: name or folder of the spaCy pipeline that tags parts of speech.
    """

    seed: int = 0
    draws: int = 10
    shots: tuple[int, ...] = (1, 2, 5, 10, 20, 50)
    epochs: int = 20
    steps: int = 1000
    copies: tuple[int, ...] = (2, 5, 10, 20, 50, 100)
    sample: int = 200
    reading: Reading = "whole"
    spacy_model: str = DEFAULT_MODEL

    @property
    def schedule(self) -> Schedule:
        """How long to train a probe."""
        return Schedule(self.epochs, self.steps)

    def facts(self) -> dict[str, Any]:
        """All options by name."""
        return asdict(self)


class Task:
    """A measurement.

    Attributes:
        name: name on the command line.
        title: title in the report.
        source: paper and section.
        differences: how protocol or data differ from the paper's.
        columns: headings of the report's table, by name of the figure.
        kinds: the kinds of sets that it reads.
        uses: names of the options that its numbers depend on.
        version: increases when only its code changes its numbers.
        main: the figure in the bars and in the time-quality plot; None for no such figure.
        of_texts: measures only the texts, so it runs once for each set.
        asked_for: runs only if named, because it needs additional packages.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    differences: ClassVar[str]
    columns: ClassVar[Mapping[str, str]]
    kinds: ClassVar[tuple[type[AnySet], ...]]
    uses: ClassVar[tuple[str, ...]] = ("seed", "reading")
    version: ClassVar[int] = 1
    main: ClassVar[str | None] = None
    of_texts: ClassVar[bool] = False
    asked_for: ClassVar[bool] = False

    def suits(self, representation: Representation) -> bool:
        """Whether the task can measure the encoder."""
        del representation
        return True

    def run(self, representation: Representation, data: Any, options: Options) -> Measured:
        """Measure.

        Args:
            representation: gives the features.
            data: a set of one of ``kinds``.
            options: options of the run.

        Raises:
            UnfitError: the set lacks what the task needs.
        """
        raise NotImplementedError

    def items(
        self,
        data: AnySet,
        options: Options,
        texts: Sequence[str],
        outcomes: Mapping[str, npt.ArrayLike],
        draws: Mapping[str, npt.ArrayLike] | None = None,
    ) -> Items:
        """Outcomes to keep. Only the encoder and its reading may differ where their digest agrees.

        Args:
            data: the set.
            options: options of the run.
            texts: the text of each document, query or pair; it identifies the item.
            outcomes: float ``[texts]``, by the name of the figure that is their mean.
            draws: mean outcome of each draw, by the name of the figure.
        """
        facts = {name: options.facts()[name] for name in self.uses if name != "reading"}
        return Items(
            digest=key(self.name, self.version, data.digest, facts, list(texts)),
            outcomes=_rounded(outcomes),
            draws=_rounded(draws or {}),
        )


def _rounded(values: Mapping[str, npt.ArrayLike]) -> dict[str, list[float]]:
    return {
        name: np.round(np.asarray(found, dtype=np.float64), _DIGITS).tolist()
        for name, found in values.items()
    }


def over_draws(values: Sequence[float]) -> Figure:
    """Mean and standard deviation (population form, ``n`` in the denominator).

    A single draw has no deviation.
    """
    deviation = float(np.std(values)) if len(values) > 1 else None
    return Figure(value=float(np.mean(values)), deviation=deviation)


def sampled(count: int, most: int, seed: int) -> npt.NDArray[np.int64]:
    """Numbers of ``most`` of ``count`` rows, or of all, in random order.

    The order is random because a file may be sorted by class.
    """
    return np.random.default_rng(seed).permutation(count)[:most]
