"""Plots of the documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
