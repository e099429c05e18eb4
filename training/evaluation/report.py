"""The report of an evaluation, as Markdown, JSON and plots."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from docsplit.corpora.fields import DataError
from training.evaluation.metrics import middle_95, resampled_means
from training.evaluation.plots import draw
from training.evaluation.results import Figure, Items, Result, every
from training.evaluation.tasks import TASKS, main_figure, main_heading
from training.evaluation.tasks.task import Task


@dataclass(frozen=True)
class Reported:
    """Figures of one model in a paper.

    Attributes:
        model: name of the model and its paper.
        figures: fractions of 1, by the name of our column.
    """

    model: str
    figures: Mapping[str, float]


@cache
def papers() -> dict[tuple[str, str], list[Reported]]:
    """The figures of the papers, by task and set; ``*`` stands for every set."""
    found: dict[tuple[str, str], list[Reported]] = {}
    with Path(__file__).with_name("papers.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            pairs = (pair.split("=") for pair in row["figures"].split())
            figures = {name: float(value) for name, value in pairs}
            found.setdefault((row["task"], row["set"]), []).append(Reported(row["model"], figures))
    return found


def reported(task: str, data: str) -> list[Reported]:
    """Figures to compare a result with."""
    return [*papers().get((task, data), []), *papers().get((task, "*"), [])]


def number(value: float) -> str:
    """Three decimals without a leading zero, as in ``.958`` or ``−.012``."""
    shown = f"{abs(value):.3f}"
    shown = shown.removeprefix("0") if abs(value) < 1 else shown
    return f"−{shown}" if value < 0 and shown != ".000" else shown


def change(value: float) -> str:
    """A difference with its sign, as in ``+.012``."""
    shown = number(value)
    return shown if value <= 0 or shown == ".000" else f"+{shown}"


def figure(found: Figure | None) -> str:
    """A figure with its deviation; a dash if there is no figure."""
    if found is None:
        return "–"
    spread = "" if found.deviation is None else f" ± {number(found.deviation)}"
    return number(found.value) + spread


def table(heading: list[str], rows: list[list[str]]) -> str:
    """A Markdown table. The first column is left-aligned, the others right-aligned."""
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


RESAMPLES = 10_000
HEADING = ("set", "task", "figure", "encoder", "baseline", "its own", "difference", "95 %", "0 is")
# With fewer changed items the bootstrap excludes 0 too often: with four of 300, which differ by
# chance, in one case of eight.
LEAST_CHANGED = 10
# outcomes are kept with as many digits
_DIGITS = 5


@dataclass(frozen=True)
class Difference:
    """How a figure of an encoder differs from the baseline's.

    Attributes:
        figure: name of the figure.
        before, after: the figure of the baseline and of the encoder.
        interval: of ``after - before``, 95 %; None if items or options are not the same.
        changed: number of items whose outcome differs.
    """

    task: str
    data: str
    figure: str
    encoder: str
    before: float
    after: float
    interval: tuple[float, float] | None
    changed: int

    @property
    def side(self) -> str:
        """Where the interval lies: ``above``, ``around`` or ``below`` 0, or ``not comparable``.

        It is also ``around`` 0 with fewer than ``LEAST_CHANGED`` changed items.
        """
        if self.interval is None:
            return "not comparable"
        low, high = self.interval
        if self.changed < LEAST_CHANGED:
            return "around"
        return "above" if low > 0 else "below" if high < 0 else "around"

    def record(self) -> dict[str, Any]:
        """All facts, for JSON."""
        return {**vars(self), "difference": self.after - self.before, "side": self.side}


def differences(results: Sequence[Result], baseline: str) -> list[Difference]:
    """Compare every other encoder with the baseline, by set, task and figure.

    It compares the figures of the tasks' tables whose outcomes the baseline's results hold.
    """
    bases = {(r.task, r.data): r for r in results if r.encoder == baseline}
    found: list[Difference] = []
    for (task, data), base in sorted(bases.items(), key=lambda pair: _place(*pair[0])):
        others = [r for r in results if (r.task, r.data) == (task, data) and r is not base]
        items = base.measured.items
        for figure in TASKS[task].columns:
            if items is None or figure not in items.outcomes:
                continue
            for other in others:
                if figure not in other.measured.figures:
                    continue
                theirs = other.measured.items
                between = interval(items, theirs, figure)
                changed = 0
                if theirs is not None and between is not None:
                    changed = int(
                        np.count_nonzero(_changes(items.outcomes, theirs.outcomes, figure))
                    )
                before, after = (one.measured.figures[figure].value for one in (base, other))
                found.append(
                    Difference(task, data, figure, other.encoder, before, after, between, changed)
                )
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
            "encoders one excludes 0 by chance; with fewer than "
            f"{LEAST_CHANGED} changed items a difference counts as around 0.",
            table(list(HEADING), rows(found)),
        ]
    )


def _changes(
    before: dict[str, list[float]], after: dict[str, list[float]], figure: str
) -> np.ndarray:
    return np.subtract(after[figure], before[figure])


def _place(task: str, data: str) -> tuple[str, int]:
    return data, list(TASKS).index(task)


def render(
    results: Sequence[Result], plots: Sequence[str], baseline: str, found: Sequence[Difference]
) -> str:
    """Markdown: encoders, an overview, the differences, a section for each task, the plots.

    Args:
        results: results of any encoders, tasks and sets.
        plots: file names, relative to the report.
        baseline: name of the encoder that the others are compared with.
        found: differences to it.
    """
    parts = ["# Evaluation", _encoders(results), "## Overview", _overview(results)]
    if rows(found):
        parts.append(section(found, baseline))
    for task in TASKS.values():
        own = [r for r in results if r.task == task.name]
        if own:
            parts += [f"## {task.title}", f"Source: {task.source}.", task.differences]
            parts += [_section(task, data, own) for data in dict.fromkeys(r.data for r in own)]
    if plots:
        parts += ["## Plots", *(f"![{name}]({name})" for name in plots)]
    return "\n\n".join(parts) + "\n"


def _encoders(results: Sequence[Result]) -> str:
    rows = {}
    for result in results:
        details = "; ".join(f"{name} {value}" for name, value in result.details.items())
        rows[result.encoder] = [result.encoder, result.kind, details]
    return table(["encoder", "kind", ""], list(rows.values()))


def _overview(results: Sequence[Result]) -> str:
    shown = [r for r in results if TASKS[r.task].main]
    pairs = [(t, d) for t in TASKS for d in dict.fromkeys(r.data for r in shown if r.task == t)]
    rows = []
    for encoder in dict.fromkeys(r.encoder for r in shown):
        own = {(r.task, r.data): r for r in shown if r.encoder == encoder}
        rows.append([encoder, *(figure(main_figure(own.get(pair))) for pair in pairs)])
    heading = [f"{task}: {data}, {main_heading(TASKS[task])}" for task, data in pairs]
    return table(["", *heading], rows)


def _section(task: Task, data: str, results: Sequence[Result]) -> str:
    own = [r for r in results if r.data == data]
    others = reported(task.name, data)
    present = {name for r in own for name in r.measured.figures}
    columns = [name for name in task.columns if name in present]
    rows = [[r.encoder, *(figure(r.measured.figures.get(c)) for c in columns)] for r in own]
    rows += [
        [f"*{p.model}*", *(number(p.figures[c]) if c in p.figures else "–" for c in columns)]
        for p in others
    ]
    counts = dict.fromkeys(_counts(r) for r in own)
    lines = [f"### {data}", table(["", *(task.columns[c] for c in columns)], rows), *counts]
    return "\n\n".join(lines)


def _counts(result: Result) -> str:
    found = [f"{value} {name}" for name, value in result.measured.counts.items()]
    if result.left_out:
        found.append(f"{result.left_out} rows left out because text or partner is missing")
    return ", ".join(found) + "."


MARKDOWN = "report.md"
JSON = "report.json"
# the files in results/ hold the outcomes; a reader of the report rarely needs them
_KEPT = {"measured": {"items"}}


@dataclass(frozen=True)
class Report:
    """A written report.

    Attributes:
        path: the Markdown file.
        baseline: name of the encoder that the others are compared with.
        differences: to the baseline.
    """

    path: Path
    baseline: str
    differences: Sequence[Difference]


def write_report(out: Path, baseline: str | None = None) -> Report:
    """Write ``report.md``, ``report.json`` and the plots of all results in ``out``.

    Args:
        out: the folder.
        baseline: name of the encoder to compare with; by default that of the last report, else the
            first encoder in the report.

    Raises:
        DataError: there are no results, or none of the baseline.
    """
    results = sorted(every(out), key=_result_place)
    if not results:
        raise DataError(
            f"{out}: no results to report; name an encoder, --data, and --tasks that suit both"
        )
    names = list(dict.fromkeys(result.encoder for result in results))
    if baseline is None:
        last = _last_baseline(out)
        baseline = last if last in names else names[0]
    elif baseline not in names:
        raise DataError(f"--baseline {baseline}: no such encoder; {out} holds {', '.join(names)}")
    found = differences(results, baseline)
    plots = draw(results, out)
    content = {
        "baseline": baseline,
        "differences": [one.record() for one in found],
        "results": [result.model_dump(mode="json", exclude=_KEPT) for result in results],
    }
    (out / JSON).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    path = out / MARKDOWN
    path.write_text(render(results, plots, baseline, found), encoding="utf-8")
    return Report(path, baseline, found)


def _last_baseline(out: Path) -> str | None:
    try:
        found = json.loads((out / JSON).read_bytes())
    except (OSError, ValueError):
        return None
    return found.get("baseline") if isinstance(found, dict) else None


def _result_place(result: Result) -> tuple[bool, str, str, str]:
    """Encoders before controls, then by name."""
    return result.kind == "control", result.encoder, result.task, result.data
