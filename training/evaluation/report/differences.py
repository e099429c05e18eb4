"""Differences between encoders, with intervals by paired bootstrap."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.evaluation.citations import middle_95, resampled_means
from training.evaluation.report.text import change, number, table
from training.evaluation.results import Items, Result
from training.evaluation.tasks.registry import TASKS

RESAMPLES = 10_000
HEADING = ("set", "task", "figure", "encoder", "baseline", "its own", "difference", "95 %", "0 is")
# outcomes are kept with as many digits
_DIGITS = 5


@dataclass(frozen=True)
class Difference:
    """How a figure of an encoder differs from the baseline's.

    Attributes:
        figure: name of the figure.
        before, after: the figure of the baseline and of the encoder.
        interval: of ``after - before``, 95 %; None if items or options are not the same.
    """

    task: str
    data: str
    figure: str
    encoder: str
    before: float
    after: float
    interval: tuple[float, float] | None

    @property
    def side(self) -> str:
        """Where the interval lies: ``above``, ``around`` or ``below`` 0, or ``not comparable``."""
        if self.interval is None:
            return "not comparable"
        low, high = self.interval
        return "above" if low > 0 else "below" if high < 0 else "around"

    def record(self) -> dict[str, Any]:
        """All facts, for JSON."""
        return {**vars(self), "difference": self.after - self.before, "side": self.side}


def differences(results: Sequence[Result], baseline: str) -> list[Difference]:
    """Compare every other encoder with the baseline, by set, task and figure.

    It compares the figures of the tasks' tables whose outcomes the baseline's results hold.
    """
    bases = {(r.task, r.data): r for r in results if r.encoder == baseline}
    found = []
    for (task, data), base in sorted(bases.items(), key=lambda pair: _place(*pair[0])):
        others = [r for r in results if (r.task, r.data) == (task, data) and r is not base]
        items = base.measured.items
        for figure in TASKS[task].columns:
            if items is None or figure not in items.outcomes:
                continue
            found += [
                Difference(
                    task,
                    data,
                    figure,
                    other.encoder,
                    base.measured.figures[figure].value,
                    other.measured.figures[figure].value,
                    interval(items, other.measured.items, figure),
                )
                for other in others
                if figure in other.measured.figures
            ]
    return found


def interval(before: Items, after: Items | None, figure: str) -> tuple[float, float] | None:
    """95 % interval of ``after - before`` by bootstrap; None if the items are not the same.

    Documents and draws are resampled apart. Each adds the deviation of its own mean, so the
    interval holds for other documents and other draws (compare Owen 2007, "The pigeonhole
    bootstrap", which resamples the table of both).
    """
    if after is None or before.digest != after.digest:
        return None
    means = resampled_means(_changes(before.outcomes, after.outcomes, figure), RESAMPLES)
    if figure in before.draws:
        by_draw = _changes(before.draws, after.draws, figure)
        means = means + resampled_means(by_draw, RESAMPLES, seed=1) - by_draw.mean()
    low, high = middle_95(means)
    return round(low, _DIGITS), round(high, _DIGITS)


def rows(found: Sequence[Difference]) -> list[list[str]]:
    """The cells of the main figures under ``HEADING``."""
    return [
        [
            one.data,
            one.task,
            TASKS[one.task].columns[one.figure],
            one.encoder,
            number(one.before),
            number(one.after),
            change(one.after - one.before),
            "–" if one.interval is None else " to ".join(map(change, one.interval)),
            one.side,
        ]
        for one in found
        if one.figure == TASKS[one.task].main
    ]


def section(found: Sequence[Difference], baseline: str) -> str:
    """The section of the report."""
    return "\n\n".join(
        [
            f"## Differences to {baseline}",
            f"95 % intervals by paired bootstrap: {RESAMPLES:,} resamples of the documents, "
            "queries or pairs, in few-shot also of the draws. Of twenty intervals between equal "
            "encoders one excludes 0 by chance.",
            table(list(HEADING), rows(found)),
        ]
    )


def _changes(
    before: dict[str, list[float]], after: dict[str, list[float]], figure: str
) -> np.ndarray:
    return np.subtract(after[figure], before[figure])


def _place(task: str, data: str) -> tuple[str, int]:
    return data, list(TASKS).index(task)
