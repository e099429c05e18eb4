"""What an index takes as it grows: a table, fits beyond the measured sizes, and a plot.

    python -m benchmarks.index.size.curves figures.jsonl --plot docs/images/scale.svg

Each line of the file comes from ``benchmarks.index.size --json``; of several lines of a size the
medians count. Time, disk and memory are fitted
as ``c * rows**b``, by least squares between logarithms, over the sizes from ``--least`` rows on;
below it constant costs count. Ranges are 95 % prediction intervals (Student's t).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.index.size.building import K
from benchmarks.rig.report import svg, table

Figures = Mapping[str, Any]

BEYOND = (10**8, 10**9)

COLUMNS: dict[str, Callable[[Figures], str]] = {
    "documents": lambda f: f"{f['rows']:,}",
    "build, s": lambda f: f"{_build(f):,.0f}",
    "disk, GB": lambda f: f"{f['bytes'] / 1e9:.2f}",
    "vector index, MB": lambda f: f"{f['vector index'] / 1e6:,.0f}",
    "memory, MB": lambda f: f"{f['memory'] / 1e6:,.0f}",
    "search p50, p99, ms": lambda f: _times(f["all"]),
    f"recall@{K}": lambda f: f"{f['all']['recall']:.3f}",
    "1 % filter p50, p99, ms": lambda f: _times(f["1 %"]),
    "recall": lambda f: f"{f['1 %']['recall']:.3f}",
    "one write, ms": lambda f: f"{1000 * np.median(f['writes']):.0f}",
}


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """``y = c * x**b``, with what a prediction interval needs."""

    fit: Any
    logarithms: np.ndarray[Any, np.dtype[np.float64]]
    deviation: float

    @classmethod
    def of(cls, sizes: Sequence[float], values: Sequence[float]) -> PowerLaw:
        """The least squares fit of at least three values."""
        x, y = np.log10(sizes), np.log10(values)
        fit = stats.linregress(x, y)
        rest = y - (fit.intercept + fit.slope * x)
        return cls(fit, x, float(np.sqrt(np.square(rest).sum() / (len(x) - 2))))

    def at(self, size: float) -> tuple[float, float, float]:
        """The fitted value, and the 95 % prediction interval."""
        x = np.log10(size)
        mean, count = self.logarithms.mean(), len(self.logarithms)
        spread = np.square(self.logarithms - mean).sum()
        error = self.deviation * np.sqrt(1 + 1 / count + (x - mean) ** 2 / spread)
        half = stats.t.ppf(0.975, count - 2) * error
        value = self.fit.intercept + self.fit.slope * x
        return 10**value, 10 ** (value - half), 10 ** (value + half)


def main() -> None:
    """Read, fit, print, plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", type=Path, help="written by benchmarks.index.size --json")
    parser.add_argument("--least", type=int, default=100_000, help="rows of the smallest fitted")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    lines = given.figures.read_text(encoding="utf-8").splitlines()
    by_size: dict[int, list[Figures]] = {}
    for line in map(json.loads, lines):
        by_size.setdefault(line["rows"], []).append(line)
    measured = [{**_median(by_size[size]), "rows": size} for size in sorted(by_size)]
    print(table([*COLUMNS], [[show(f) for show in COLUMNS.values()] for f in measured]))
    fitted = [f for f in measured if f["rows"] >= given.least]
    print(table(["documents", *_FITTED], [_beyond(fitted, size) for size in BEYOND]))
    if given.plot is not None:
        plot(measured, given.plot)


_FITTED: dict[str, Callable[[Figures], float]] = {
    "build, hours": lambda f: _build(f) / 3600,
    "disk, GB": lambda f: f["bytes"] / 1e9,
    "vector index, GB": lambda f: f["vector index"] / 1e9,
}


def _median(values: Sequence[Any]) -> Any:
    """The median of each number; of lists of numbers, all of them."""
    if isinstance(values[0], dict):
        return {name: _median([value[name] for value in values]) for name in values[0]}
    if isinstance(values[0], list):
        return [*chain.from_iterable(values)]
    return float(np.median(values))


def _beyond(fitted: Sequence[Figures], size: int) -> list[str]:
    sizes = [f["rows"] for f in fitted]
    cells = [f"{size:,}"]
    for value in _FITTED.values():
        at, low, high = PowerLaw.of(sizes, [value(f) for f in fitted]).at(size)
        cells.append(f"{at:,.3g} ({low:,.3g} to {high:,.3g})")
    return cells


def _build(figures: Figures) -> float:
    return float(figures["writing"] + figures["optimizing"])


def _times(own: Figures) -> str:
    return f"{1000 * own['p50']:.1f}, {1000 * own['p99']:.1f}"


def plot(measured: Sequence[Figures], path: Path) -> None:
    """Draw every figure by size."""
    sizes = [f["rows"] for f in measured]

    def by(name: str, part: str, scale: float = 1000) -> list[float]:
        return [scale * f[name][part] for f in measured]

    panels: dict[str, dict[str, list[float]]] = {
        "build, s": {
            "write": [f["writing"] for f in measured],
            "build the indexes": [f["optimizing"] for f in measured],
        },
        "bytes": {
            "disk": [f["bytes"] for f in measured],
            "vector index": [f["vector index"] for f in measured],
            "memory of a search process": [f["memory"] for f in measured],
        },
        "search, ms": {
            "p50": by("all", "p50"),
            "p99": by("all", "p99"),
            "p99, 1 % filter": by("1 %", "p99"),
        },
        f"recall@{K}": {"all": by("all", "recall", 1), "1 % filter": by("1 %", "recall", 1)},
    }
    with svg(path, (7.2, 4.6)) as figure:
        for axes, (name, lines) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
            for (label, values), marker in zip(lines.items(), "osd", strict=False):
                # an index of few documents has no vector index
                shown = [(size, value) for size, value in zip(sizes, values, strict=True) if value]
                axes.plot(*zip(*shown, strict=True), marker=marker, markersize=3, label=label)
            axes.set_xscale("log")
            if name.startswith("recall"):
                axes.set_ylim(0.9, 1.005)
            else:
                axes.set_yscale("log")
            axes.set_xlabel("documents")
            axes.set_ylabel(name)
            axes.grid(alpha=0.3)
            axes.legend()


if __name__ == "__main__":
    main()
