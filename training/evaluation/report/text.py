"""Format numbers and tables."""

from training.evaluation.results import Figure


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
