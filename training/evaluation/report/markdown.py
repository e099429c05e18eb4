"""The report as Markdown."""

from collections.abc import Sequence

from training.evaluation.report.differences import Difference, rows, section
from training.evaluation.report.papers import reported
from training.evaluation.report.text import figure, number, table
from training.evaluation.results import Figure, Result
from training.evaluation.tasks.registry import TASKS
from training.evaluation.tasks.task import Task


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


def main_heading(task: Task) -> str:
    """Heading of the main figure of a task."""
    return task.columns[task.main] if task.main else ""


def main_figure(result: Result | None) -> Figure | None:
    """The main figure of a result."""
    if result is None:
        return None
    main = TASKS[result.task].main
    return result.measured.figures.get(main) if main else None


def _section(task: Task, data: str, results: Sequence[Result]) -> str:
    own = [r for r in results if r.data == data]
    papers = reported(task.name, data)
    present = {name for r in own for name in r.measured.figures}
    columns = [name for name in task.columns if name in present]
    rows = [[r.encoder, *(figure(r.measured.figures.get(c)) for c in columns)] for r in own]
    rows += [
        [f"*{p.model}*", *(number(p.figures[c]) if c in p.figures else "–" for c in columns)]
        for p in papers
    ]
    counts = dict.fromkeys(_counts(r) for r in own)
    lines = [f"### {data}", table(["", *(task.columns[c] for c in columns)], rows), *counts]
    return "\n\n".join(lines)


def _counts(result: Result) -> str:
    found = [f"{value} {name}" for name, value in result.measured.counts.items()]
    if result.left_out:
        found.append(f"{result.left_out} rows left out because text or partner is missing")
    return ", ".join(found) + "."
