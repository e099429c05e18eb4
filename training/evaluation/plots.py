"""The plots of the report."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from training.evaluation.results import Result
from training.evaluation.tasks import TASKS, main_figure, main_heading

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
