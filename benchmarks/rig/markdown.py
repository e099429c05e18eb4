"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is aligned to the left, the others to the right."""
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
