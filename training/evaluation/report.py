"""The report of an evaluation, as Markdown, JSON and plots."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from docsplit.corpora.fields import DataError
from training.evaluation.metrics import middle_95, resampled_means
from training.evaluation.plots import draw
from training.evaluation.results import Figure, Items, Result, every
from training.evaluation.tasks import TASKS, main_figure, main_heading
from training.evaluation.tasks.task import Task

# Figures from the papers, by task and set; ``*`` matches every set.


@dataclass(frozen=True)
class Reported:
    """Figures of one model in a paper.

    Attributes:
        model: name of the model and its paper.
        figures: fractions of 1, by the name of our column.
    """

    model: str
    figures: Mapping[str, float]


def reported(task: str, data: str) -> list[Reported]:
    """Figures to compare a result with."""
    return [*_FIGURES.get((task, data), []), *_FIGURES.get((task, "*"), [])]


def _classified(shots: str, *rows: tuple[str, float, float]) -> list[Reported]:
    return [
        Reported(
            f"{model} (DocSplit, Table 2)",
            {f"accuracy{shots}": a / 100, f"macro_f1{shots}": f / 100},
        )
        for model, a, f in rows
    ]


_BERT, _SIMCSE, _OURS, _LONG = "BERT", "SimCSE", "DocSplit, BERT", "DocSplit, Longformer"

_BUCKETS = ("words_50", "words_100", "words_200", "words_300", "words_more", "all")

_FIGURES: dict[tuple[str, str], list[Reported]] = {
    ("probe", "fakenews"): _classified(
        "",
        (_BERT, 54.98, 42.17),
        (_SIMCSE, 58.48, 47.46),
        (_OURS, 60.04, 50.14),
        (_LONG, 71.60, 61.66),
    ),
    ("probe", "news20"): _classified(
        "",
        (_BERT, 62.34, 54.19),
        (_SIMCSE, 74.02, 72.57),
        (_OURS, 76.89, 74.85),
        (_LONG, 75.44, 74.38),
    ),
    ("probe", "arxiv"): _classified(
        "",
        (_BERT, 68.52, 20.46),
        (_SIMCSE, 74.46, 30.01),
        (_OURS, 76.66, 32.24),
        (_LONG, 77.68, 33.26),
    ),
    ("probe", "bbc"): _classified(
        "",
        (_BERT, 91.06, 90.34),
        (_SIMCSE, 94.12, 93.86),
        (_OURS, 95.56, 95.58),
        (_LONG, 96.67, 95.91),
    ),
    ("few-shot", "fakenews"): _classified(
        "_10",
        (_BERT, 23.96, 23.73),
        (_SIMCSE, 25.04, 22.68),
        (_OURS, 27.79, 24.65),
        (_LONG, 29.17, 27.13),
    ),
    ("few-shot", "news20"): _classified(
        "_5",
        (_BERT, 19.94, 18.71),
        (_SIMCSE, 42.63, 41.42),
        (_OURS, 55.79, 55.43),
        (_LONG, 51.18, 50.96),
    ),
    ("few-shot", "arxiv"): _classified(
        "_10",
        (_BERT, 24.08, 10.14),
        (_SIMCSE, 32.61, 17.19),
        (_OURS, 35.79, 18.52),
        (_LONG, 34.33, 18.80),
    ),
    ("few-shot", "bbc"): _classified(
        "_5",
        (_BERT, 54.22, 52.73),
        (_SIMCSE, 83.56, 83.75),
        (_OURS, 86.86, 86.31),
        (_LONG, 86.78, 86.66),
    ),
    ("citation-links", "aan_scisumm"): [
        Reported(f"{model} (DocSplit, Table 3)", {"accuracy": value / 100})
        for model, value in (
            (_BERT, 53.56),
            (_SIMCSE, 54.78),
            (_OURS, 58.29),
            ("Longformer", 56.89),
            (_LONG, 59.89),
        )
    ],
    ("retrieval", "scifact"): [
        Reported(f"{model} (LA(SER)³, {where})", {"ndcg_10": value})
        for model, where, value in (
            ("SimCSE, BERT-base", "Table 1", 0.2492),
            ("LA(SER)³ self, BERT-base", "Table 1", 0.4317),
            ("SimCSE, MiniLM-L6", "Table 2", 0.2174),
            ("LA(SER)³ self, MiniLM-L6", "Table 2", 0.3525),
            ("COCO-DR, MiniLM-L6 on MS MARCO", "Table 2", 0.4056),
            ("LA(SER)³ intra, MiniLM-L6 on MS MARCO", "Table 2", 0.4076),
        )
    ],
    ("retrieval", "nfcorpus"): [
        Reported("LA(SER)³ self, BERT-base (LA(SER)³, Table 1)", {"ndcg_10": 0.1919}),
        Reported("LA(SER)³ self, MiniLM-L6 (LA(SER)³, Table 2)", {"ndcg_10": 0.1265}),
    ],
    ("retrieval", "arguana"): [
        Reported("LA(SER)³ self, BERT-base (LA(SER)³, Table 1)", {"ndcg_10": 0.4227}),
        Reported("LA(SER)³ self, MiniLM-L6 (LA(SER)³, Table 2)", {"ndcg_10": 0.3130}),
    ],
    ("elongation", "*"): [
        Reported(
            "MiniLM tuned on QQP, 100 copies (LA(SER)³, section 2)",
            {"questions_before": 0.06, "questions_after": 0.42},
        )
    ],
    **{
        ("geometry", data): [
            Reported("SimCSE (DocSplit, Table 5)", {"inner": inner, "inter": inter})
        ]
        for data, inner, inter in (
            ("fakenews", 0.28, 0.06),
            ("news20", 0.21, 0.07),
            ("arxiv", 0.51, 0.35),
            ("bbc", 0.32, 0.09),
        )
    },
    **{
        ("redundancy", data): [
            Reported("SimLTE, Table 3", dict(zip(_BUCKETS, figures, strict=True)))
        ]
        for data, figures in (
            ("news20", (1.12, 1.18, 1.24, 1.31, 1.50, 1.28)),
            ("arxiv", (1.12, 1.25, 1.36, 1.49, 1.62, 1.34)),
            ("bbc", (1.05, 1.14, 1.20, 1.29, 1.46, 1.19)),
        )
    },
    ("same-document", "*"): [
        Reported("Longformer, contrastive, on Wikipedia (section 5)", {"accuracy": 0.82})
    ],
}


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
