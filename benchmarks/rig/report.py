"""Figures of a benchmark: aims, tables in Markdown and plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Verdict:
    """An aim and its figure."""

    aim: str
    figure: float
    bound: float
    most: bool = False

    @property
    def held(self) -> bool:
        """Whether the figure is on the right side of the bound."""
        return self.figure <= self.bound if self.most else self.figure >= self.bound


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table. The first column is left-aligned, the others right-aligned."""
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@contextmanager
def svg(path: Path, size: tuple[float, float]) -> Iterator[Figure]:
    """A figure of ``size`` inches, written to ``path``. Equal drawings give equal bytes."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "docsplit", "font.size": 8}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        yield figure
        figure.savefig(path, metadata={"Date": None})
