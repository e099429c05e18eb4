"""Run every task with every encoder on every set that fits."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from docsplit.corpora.catalogue import Found
from docsplit.corpora.fields import DataError
from docsplit.corpora.sets import AnySet
from docsplit.engines.choice import ArithmeticWish
from export.progress import Progress
from training.errors import SettingsError
from training.evaluation.encoders import Representation, TextsOnly, name_of, opened
from training.evaluation.report import figure
from training.evaluation.tasks import main_figure, main_heading
from training.evaluation.tasks.task import (
    Options,
    Result,
    Task,
    UnfitError,
    every,
    key,
    path_of,
    read,
    write,
)


@dataclass(frozen=True)
class Request:
    """What to evaluate.

    Attributes:
        encoders: the encoders, in the form that ``opened`` takes.
        sets: the sets of the data.
        tasks: tasks to run on the sets that fit them.
        options: options of the tasks.
        out: folder of the results.
        cache: folder of the vectors.
        baseline: name of the encoder to compare with, one of these or of ``out``.
        max_tokens: window of a sentence-transformers encoder.
        precision: in which bundles compute.
        trust_remote_code: run modelling code in the folder of its weights.
    """

    encoders: Sequence[str]
    sets: Sequence[Found]
    tasks: Sequence[Task]
    options: Options
    out: Path
    cache: Path
    baseline: str | None = None
    max_tokens: int | None = None
    precision: ArithmeticWish = "auto"
    trust_remote_code: bool = False


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation did.

    Attributes:
        first: name of the first encoder that has a result; None if none has.
        left_out: one line for each measurement that was left out, with the reason.
    """

    first: str | None
    left_out: list[str]


def carry_out(request: Request, console: Console) -> Evaluated:
    """Measure what has no result yet, and write each result at once.

    Raises:
        TrainingError: an encoder or a set cannot be read, or two encoders have one name.
        DataError: the baseline is none of the encoders.
    """
    _check_names(request)
    evaluation = _Evaluation(request, console)
    evaluation.of(TextsOnly(), [task for task in request.tasks if task.of_texts])
    tasks = [task for task in request.tasks if not task.of_texts]
    for given in request.encoders if tasks else ():
        with opened(
            given,
            request.cache,
            max_tokens=request.max_tokens,
            precision=request.precision,
            trust_remote_code=request.trust_remote_code,
            progress=Progress(console),
        ) as representation:
            evaluation.of(representation, tasks)
    return Evaluated(evaluation.first, evaluation.left_out)


def _check_names(request: Request) -> None:
    """Refuse wrong encoders and a wrong baseline before the first measurement, which takes long."""
    taken: dict[str, str] = {}
    for given in request.encoders:
        name = name_of(given)
        if name in taken:
            raise SettingsError(
                f"{given} and {taken[name]} are both called {name}; name them, as in second={given}"
            )
        taken[name] = given
    if request.baseline is None:
        return
    names = dict.fromkeys(_read_as(name, request.options) for name in taken)
    names |= dict.fromkeys(result.encoder for result in every(request.out))
    if request.baseline not in names:
        raise DataError(
            f"--baseline {request.baseline}: no such encoder; there are {', '.join(names)}"
        )


class _Evaluation:
    """The sets, read on first use, and what ``Evaluated`` says."""

    def __init__(self, request: Request, console: Console) -> None:
        self._request, self._console = request, console
        self._held: dict[str, AnySet] = {}
        self.left_out: list[str] = []
        self.first: str | None = None

    def of(self, representation: Representation, tasks: Sequence[Task]) -> None:
        """Measure one encoder."""
        name = called(representation, self._request.options)
        if self._request.options.reading not in representation.readings:
            self.left_out.append(f"{name}: has no windows")
            return
        for found in self._request.sets:
            for task in tasks:
                if not issubclass(found.kind, task.kinds) or not task.suits(representation):
                    continue
                if found.name not in self._held:
                    self._held[found.name] = found.load()
                data = self._held[found.name]
                try:
                    _measure(task, representation, data, self._request, self._console)
                except UnfitError as error:
                    self.left_out.append(f"{name}, {task.name}: {error}")
                    continue
                if self.first is None and not task.of_texts:
                    self.first = name


def called(representation: Representation, options: Options) -> str:
    """The name in the report. It shows if the run reads only first windows."""
    name = representation.name
    return name if representation.kind == "texts" else _read_as(name, options)


def _read_as(name: str, options: Options) -> str:
    return name if options.reading == "whole" else f"{name}, first window"


def _measure(
    task: Task, representation: Representation, data: AnySet, request: Request, console: Console
) -> None:
    used = {option: request.options.facts()[option] for option in task.uses}
    digest = key(task.name, task.version, representation.revision, data.name, data.digest, used)
    name = called(representation, request.options)
    path = path_of(request.out, task.name, data.name, name)
    result = read(path)
    again = result is not None and result.key == digest
    if result is None or not again:
        measured = task.run(representation, data, request.options)
        result = Result(
            task=task.name,
            data=data.name,
            encoder=name,
            kind=representation.kind,
            revision=representation.revision,
            details=representation.details,
            key=digest,
            left_out=data.left_out,
            measured=measured,
            seconds_per_1000_words=representation.pace(),
        )
        write(path, result)
    shown = main_figure(result)
    said = f"{main_heading(task)} {figure(shown)}" if shown is not None else "done"
    kept = " (kept)" if again else ""
    console.print(
        f"{name}: {task.name} on {data.name}: {said}{kept}",
        markup=False,
        soft_wrap=True,
    )
