"""The interface of a task."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from docsplit.corpora.fields import DataError
from docsplit.corpora.sets import AnySet
from training.evaluation.encoders import Reading, Representation
from training.evaluation.probes import Schedule
from training.evaluation.results import Figure, Items, Measured, key

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
