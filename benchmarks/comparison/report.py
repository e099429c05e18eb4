"""Write the figures of a run as Markdown and as plots."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.comparison import aims
from benchmarks.comparison.peers import environments
from benchmarks.comparison.results import Results
from benchmarks.rig.report import Verdict, svg, table

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
RATES, WAITS = "bench-throughput.svg", "bench-latency.svg"


def markdown(results: Results, engine: dict[str, Any] | None, command: str, texts: int) -> str:
    """Command, machine, verdicts, a table for each scenario, memory, and omitted measurements."""
    parts = [f"```\n{command}\n```", _conditions(texts, results.load)]
    found = aims.verdicts(results, engine)
    if found:
        rows = [
            [v.aim, _number(v.figure), f"{'≤' if v.most else '≥'} {_number(v.bound)}", _held(v)]
            for v in found
        ]
        parts.append(table(["", "measured", "aim", ""], rows))
    if engine is not None:
        rows = [[k, f"{v:,}"] for k, v in engine["tokens_per_second"].items()]
        title = (
            f"16 documents a request, {engine['clients']} clients, beside the engine in process "
            f"({engine['engine']})"
        )
        parts += [f"**{title}**", table(["", "tokens/s"], rows)]
    for name, title in results.titles.items():
        if results.rounds[name]:
            parts += [f"**{title[0].upper()}{title[1:]}**", _scenario(results, name)]
    if results.rss_mb:
        rows = [
            [name, f"{mb:,.0f}", _number(results.ready_seconds[name])]
            for name, mb in results.rss_mb.items()
        ]
        parts += ["**Memory and start**", table(["", "peak RSS, MB", "ready after, s"], rows)]
    parts += [f"Left out: {name}: {why}" for name, why in results.left_out.items()]
    return "\n\n".join(parts)


def write(path: Path, made: str, results: Results) -> None:
    """Draw plots, and put the report between a document's markers, or at its end."""
    images = path.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    plots = _plot(results, images)
    body = "\n\n".join([made, *(f"![{name[:-4]}](images/{name})" for name in plots)])
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n".lstrip()
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    path.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


def _conditions(texts: int, load: float) -> str:
    ours = f"docsplit {importlib.metadata.version('docsplit')}"
    infinity = _pinned("infinity", "infinity_emb")
    plain = _pinned("plain", "sentence-transformers")
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()}, Python "
        f"{platform.python_version()}, load {load:.1f} before; {ours}, infinity {infinity}, "
        f"sentence-transformers {plain} behind FastAPI (plain). {texts} documents were drawn. "
        f"Tokens are those that enter a vector: all of a document here, the first "
        f"{environments.WINDOW} at the peers."
    )


def _pinned(environment: str, package: str) -> str:
    path = environments.HERE / f"{environment}.txt"
    lines = (line.split("==") for line in path.read_text(encoding="utf-8").splitlines())
    return next((line[1] for line in lines if line[0] == package), "")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _held(verdict: Verdict) -> str:
    return "held" if verdict.held else "**missed**"


def _scenario(results: Results, name: str) -> str:
    sides = results.rounds[name]
    kinds = dict.fromkeys(k for side in sides for k in results.kinds(name, side))
    extras = dict.fromkeys(f for side in sides for f in results.figures(name, side))
    heads = ["", "documents/s", "tokens/s"]
    for kind in kinds:
        heads += [f"{kind} p50 ms".strip(), f"{kind} p99 ms".strip()]
    statuses = sorted({s for made in sides.values() for r in made for s in r.statuses} - {200})
    heads += [*extras, *(f"status {s}" if s else "given up" for s in statuses)]
    rows = []
    for side, made in sides.items():
        row = [side, _number(results.documents_rate(name, side))]
        row.append(f"{results.tokens_rate(name, side):,.0f}")
        for kind in kinds:
            waits = (results.quantile(name, side, kind, share) for share in (0.5, 0.99))
            row += [_number(1000 * seconds) for seconds in waits]
        figures = results.figures(name, side)
        row += [_number(figures.get(extra, math.nan)) for extra in extras]
        row += [str(sum(r.statuses.get(status, 0) for r in made)) for status in statuses]
        rows.append(row)
    return table(heads, rows)


def _number(value: float) -> str:
    if math.isnan(value):
        return ""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _plot(results: Results, folder: Path) -> list[str]:
    rates = [n for n in results.rounds if n.startswith("clients-") or n in ("groups", "articles")]
    waits = [
        (name, kind)
        for name in results.rounds
        if name in (*rates, "beside", "offered")
        for kind in dict.fromkeys(k for s in results.rounds[name] for k in results.kinds(name, s))
    ]
    drawn = []
    if rates:
        tokens = {n: {s: results.tokens_rate(n, s) for s in results.rounds[n]} for n in rates}
        whole = {n: {s: results.documents_rate(n, s) for s in results.rounds[n]} for n in rates}
        _bars({"tokens/s": tokens, "documents/s": whole}, folder / RATES, log=False)
        drawn.append(RATES)
    if waits:
        panels = {
            f"p{share * 100:.0f}, ms": {
                f"{n} {k}".strip(): {
                    s: 1000 * results.quantile(n, s, k, share) for s in results.rounds[n]
                }
                for n, k in waits
            }
            for share in (0.5, 0.99)
        }
        _bars(panels, folder / WAITS, log=True)
        drawn.append(WAITS)
    return drawn


def _bars(panels: dict[str, dict[str, dict[str, float]]], path: Path, *, log: bool) -> None:
    sides = list(dict.fromkeys(s for groups in panels.values() for g in groups.values() for s in g))
    width = 0.8 / len(sides)
    with svg(path, (9, 6)) as figure:
        for number, (label, groups) in enumerate(panels.items(), start=1):
            axes = figure.add_subplot(len(panels), 1, number)
            at = np.arange(len(groups))
            for place, side in enumerate(sides):
                heights = [group.get(side, math.nan) for group in groups.values()]
                axes.bar(at + width * place, heights, width, label=side)
            ticks = [textwrap.fill(name, 14) for name in groups]
            axes.set_xticks(at + width * (len(sides) - 1) / 2, ticks)
            axes.set_ylabel(label)
            axes.grid(axis="y", alpha=0.3)
            if log:
                least = np.nanmin([value for group in groups.values() for value in group.values()])
                axes.set_yscale("log")
                axes.set_ylim(bottom=10 ** math.floor(math.log10(least)))
        figure.legend(
            *figure.axes[0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=len(sides),
        )
