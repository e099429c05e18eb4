"""The report of an evaluation, as Markdown, JSON and plots."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from docsplit.corpora.fields import DataError
from training.evaluation.metrics import middle_95, resampled_means
from training.evaluation.tasks import TASKS, main_figure, main_heading
from training.evaluation.tasks.task import Figure, Items, Result, Task, every


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


_BINS = np.linspace(-0.2, 1, 40)


def draw(results: Sequence[Result], out: Path) -> list[str]:
    """Write every plot that the results allow.

    Returns:
        File names, relative to ``out``.
    """
    drawers = (_bars, _few_shot, _time_quality, _elongation, _distributions, _length)
    return [name for drawer in drawers for name in drawer(results, out)]


@contextmanager
def _figure(path: Path, width: float, height: float) -> Iterator[Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    yield figure
    figure.savefig(path, dpi=110)


def _bars(results: Sequence[Result], out: Path) -> Iterator[str]:
    for task in TASKS.values():
        own = [r for r in results if r.task == task.name and main_figure(r) is not None]
        if task.main is None or not own:
            continue
        sets = list(dict.fromkeys(r.data for r in own))
        encoders = list(dict.fromkeys(r.encoder for r in own))
        name = f"bars-{task.name}.png"
        with _figure(out / name, max(5.0, 1.2 + 0.4 * len(sets) * (len(encoders) + 1)), 4) as plot:
            axis = plot.subplots()
            axis.set_title(f"{task.title}: {main_heading(task)}")
            width = 0.8 / len(encoders)
            for number, encoder in enumerate(encoders):
                found = {r.data: main_figure(r) for r in own if r.encoder == encoder}
                figures = [(i, found[d]) for i, d in enumerate(sets) if found.get(d) is not None]
                axis.bar(
                    [i + (number + 0.5) * width - 0.4 for i, _ in figures],
                    [f.value for _, f in figures if f is not None],
                    width,
                    yerr=[(f.deviation or 0.0) for _, f in figures if f is not None],
                    label=encoder,
                    capsize=2,
                )
            axis.set_xticks(range(len(sets)), sets)
            axis.grid(axis="y", alpha=0.3)
            plot.legend(loc="outside lower center", fontsize="small", ncols=3)
        yield name


def _few_shot(results: Sequence[Result], out: Path) -> Iterator[str]:
    for data, own in _by_set(results, "few-shot"):
        name = f"few-shot-{data}.png"
        with _figure(out / name, 6, 4) as plot:
            axis = plot.subplots()
            axis.set_title(f"{data}: accuracy over examples of each class")
            for result in own:
                curve = result.measured.series["accuracy"]
                axis.errorbar(
                    curve.x, curve.y, curve.deviation, label=result.encoder, marker="o", capsize=2
                )
            ticks = sorted({x for r in own for x in r.measured.series["accuracy"].x})
            axis.set_xscale("log")
            axis.set_xticks(ticks, [f"{int(x)}" for x in ticks])
            axis.set_xticks([], minor=True)
            axis.grid(alpha=0.3)
            axis.legend(fontsize="small")
        yield name


def _time_quality(results: Sequence[Result], out: Path) -> Iterator[str]:
    timed = [r for r in results if r.seconds_per_1000_words and TASKS[r.task].main]
    encoders = list(dict.fromkeys(r.encoder for r in timed))
    if not encoders:
        return
    done = [{(r.task, r.data) for r in timed if r.encoder == encoder} for encoder in encoders]
    shared = set.intersection(*done)
    if not shared:
        return
    name = "time-quality.png"
    with _figure(out / name, 6, 4) as plot:
        axis = plot.subplots()
        axis.set_title(f"mean of {len(shared)} main figures over the time to embed")
        for encoder in encoders:
            own = [r for r in timed if r.encoder == encoder and (r.task, r.data) in shared]
            values = [f.value for f in map(main_figure, own) if f is not None]
            pace = max(r.seconds_per_1000_words or 0.0 for r in own)
            axis.scatter([pace], [np.mean(values)], label=encoder)
            axis.annotate(encoder, (pace, float(np.mean(values))), fontsize="small")
        axis.set_xscale("log")
        axis.set_xlabel("seconds for 1,000 words")
        axis.grid(alpha=0.3)
    yield name


def _elongation(results: Sequence[Result], out: Path) -> Iterator[str]:
    for data, own in _by_set(results, "elongation"):
        name = f"elongation-{data}.png"
        keys = ("itself", "unrelated", "related", "questions, unrelated")
        titles = ("a text and itself repeated", "unrelated texts", "related texts", "questions")
        with _figure(out / name, 13, 3.6) as plot:
            for axis, key, title in zip(plot.subplots(1, 4), keys, titles, strict=True):
                axis.set_title(title)
                for result in own:
                    curve = result.measured.series[key]
                    axis.plot(curve.x, curve.y, marker="o", markersize=3, label=result.encoder)
                axis.set_xscale("log")
                axis.set_xlabel("copies")
                axis.set_ylim(-0.1, 1.05)
                axis.grid(alpha=0.3)
                if key == keys[0]:
                    axis.set_ylabel("mean cosine")
                    axis.legend(fontsize="small")
        yield name


def _distributions(results: Sequence[Result], out: Path) -> Iterator[str]:
    for data, own in _by_set(results, "elongation"):
        name = f"similarities-{data}.png"
        with _figure(out / name, 2.8 * len(own) + 0.5, 5) as plot:
            grid = plot.subplots(2, len(own), squeeze=False, sharex=True)
            for column, result in enumerate(own):
                grid[0][column].set_title(result.encoder, fontsize="medium")
                for row, pairs in enumerate(("unrelated", "related")):
                    axis = grid[row][column]
                    for when in ("once", "repeated"):
                        values = result.measured.samples[f"{pairs}, {when}"]
                        # one outline is drawn in a tenth of the time of forty bars
                        axis.hist(values, _BINS, histtype="stepfilled", alpha=0.6, label=when)
                    axis.set_xlabel(f"cosine of {pairs} texts", fontsize="small")
                    axis.legend(fontsize="small")
        yield name


def _length(results: Sequence[Result], out: Path) -> Iterator[str]:
    for data, own in _by_set(results, "length"):
        name = f"length-{data}.png"
        buckets = max((r.measured.series["whole"].x for r in own), key=len)
        with _figure(out / name, 7, 4) as plot:
            axis = plot.subplots()
            axis.set_title(f"{data}: quality by length in words")
            for number, result in enumerate(own):
                for reading, style in (("whole", "-"), ("first", "--")):
                    curve = result.measured.series.get(reading)
                    if curve is None:
                        continue
                    label = result.encoder + (", first window" if reading == "first" else "")
                    places = [buckets.index(x) for x in curve.x]  # type: ignore[arg-type]
                    axis.plot(places, curve.y, style, color=f"C{number}", marker="o", label=label)
            axis.set_xticks(range(len(buckets)), buckets)
            axis.grid(alpha=0.3)
            axis.legend(fontsize="small")
        yield name


def _by_set(results: Sequence[Result], task: str) -> Iterator[tuple[str, list[Result]]]:
    for data in dict.fromkeys(r.data for r in results if r.task == task):
        own = [r for r in results if r.task == task and r.data == data]
        drawable = [r for r in own if r.measured.series]
        if drawable:
            yield data, drawable
