"""What a task is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from corpora.errors import DataError
from corpora.sets import AnySet
from training.evaluation.encoders.interface import Reading, Representation
from training.evaluation.linguistics import DEFAULT_MODEL
from training.evaluation.probes.perceptron import Schedule
from training.evaluation.results import Figure, Measured


class UnfitError(DataError):
    """A set that a task cannot be measured on; the message says what it lacks."""


@dataclass(frozen=True)
class Options:
    """What the command line can change of the protocols.

    Attributes:
        seed: of every draw.
        draws: repetitions of few-shot and of the split of linked documents.
        shots: examples of each class in few-shot.
        epochs: of a probe on full data.
        steps: of a probe, at least, whatever the epochs.
        copies: times a text is repeated in the elongation attack, ascending.
        sample: documents that the tasks without labels read.
        reading: how documents are read, ``whole`` or ``first``, where a task does not compare both.
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
        """How long a probe is trained."""
        return Schedule(self.epochs, self.steps)

    def facts(self) -> dict[str, Any]:
        """All of them, by name."""
        return asdict(self)


class Task:
    """A measurement.

    Attributes:
        name: on the command line.
        title: in the report.
        source: paper and section.
        differences: where protocol or data are not the paper's.
        columns: heading of each figure that the report's table shows, by name.
        kinds: the sets it reads.
        uses: names of the options that its numbers depend on.
        version: raised when its numbers change though nothing else does.
        main: the figure of the bars and of the time-quality plot; None has no place there.
        of_texts: measured once for a set, whatever the encoder.
        asked_for: measured only where it is named, as it needs more than is installed by default.
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
        """Whether the encoder can be measured so."""
        del representation
        return True

    def run(self, representation: Representation, data: Any, options: Options) -> Measured:
        """Measure.

        Args:
            representation: gives the features.
            data: a set of one of ``kinds``.
            options: of the run.

        Raises:
            UnfitError: the set lacks what the task needs.
        """
        raise NotImplementedError


def over_draws(values: Sequence[float]) -> Figure:
    """Mean and standard deviation (of the draws themselves, ``n`` in the denominator).

    A single draw has no deviation.
    """
    deviation = float(np.std(values)) if len(values) > 1 else None
    return Figure(value=float(np.mean(values)), deviation=deviation)


def sampled(count: int, most: int, seed: int) -> npt.NDArray[np.int64]:
    """Numbers of ``most`` of ``count`` rows, or of all, in random order.

    Neighbours in the order are strangers, though a file may be sorted by class.
    """
    return np.random.default_rng(seed).permutation(count)[:most]
