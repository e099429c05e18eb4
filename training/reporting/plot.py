"""Plot a run."""

from pathlib import Path
from typing import Any

from training.reporting.curve import STEPS, VALIDATIONS, read_lines

PLOT = "run.png"
_SMOOTHING = 0.9


def plot_run(folder: Path, chance: float | None) -> Path:
    """Plot loss, learning rate and gradient norm, validation, and speed of a recorded run.

    Args:
        folder: the folder of ``steps.jsonl`` and ``validations.jsonl``.
        chance: contrastive loss of an encoder with one vector for all texts, shown as a line.

    Returns:
        The path of the plot.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    steps = read_lines(folder / STEPS)
    validations = read_lines(folder / VALIDATIONS)
    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    _losses(axes[0][0], steps, chance)
    _validation(axes[0][1], validations)
    _optimiser(axes[1][0], steps)
    _speed(axes[1][1], steps)
    for axis in axes.flat:
        axis.set_xlabel("optimiser step")
        axis.grid(alpha=0.3)
    path = folder / PLOT
    figure.savefig(path, dpi=110)
    return path


def _losses(axis: Any, steps: list[dict[str, float]], chance: float | None) -> None:
    axis.set_title("loss (thin: each step, thick: running mean)")
    x = [s["step"] for s in steps]
    for key, colour in (("contrastive", "tab:blue"), ("mlm", "tab:orange")):
        values = [s[key] for s in steps]
        if not any(values):
            continue
        axis.plot(x, values, color=colour, alpha=0.25, linewidth=0.8)
        axis.plot(x, _smooth(values), color=colour, label=key)
    if chance is not None:
        axis.axhline(chance, color="grey", linestyle=":", label="contrastive, chance")
    axis.set_ylim(bottom=0)
    axis.legend()


def _validation(axis: Any, validations: list[dict[str, float]]) -> None:
    axis.set_title("held-out documents")
    x = [v["step"] for v in validations]
    for key, label in (
        ("discrimination", "same-document discrimination, accuracy"),
        ("mrr", "retrieval of the other half, MRR"),
    ):
        axis.plot(x, [v[key] for v in validations], marker="o", markersize=3, label=label)
    axis.legend()


def _optimiser(axis: Any, steps: list[dict[str, float]]) -> None:
    axis.set_title("learning rate and gradient norm")
    x = [s["step"] for s in steps]
    lines = axis.plot(x, [s["learning_rate"] for s in steps], color="tab:green", label="rate")
    right = axis.twinx()
    norms = [s["gradient_norm"] for s in steps]
    lines += right.plot(x, norms, color="tab:red", alpha=0.5, linewidth=0.8, label="norm")
    axis.legend(handles=lines)


def _speed(axis: Any, steps: list[dict[str, float]]) -> None:
    axis.set_title("documents per second, and share of tokens that are not padding")
    x = [s["step"] for s in steps]
    rates = [s["documents"] / max(s["seconds"], 1e-9) for s in steps]
    lines = axis.plot(x, _smooth(rates), color="tab:purple", label="documents/s")
    right = axis.twinx()
    right.set_ylim(0, 1.05)
    useful = [s["tokens"] / max(s["padded_tokens"], 1) for s in steps]
    lines += right.plot(x, useful, color="tab:grey", alpha=0.6, linewidth=0.8, label="useful share")
    axis.set_ylim(bottom=0)
    axis.legend(handles=lines)


def _smooth(values: list[float]) -> list[float]:
    """Exponential running mean, corrected for its start."""
    out, mean, mass = [], 0.0, 0.0
    for value in values:
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * value
        mass = _SMOOTHING * mass + (1 - _SMOOTHING)
        out.append(mean / mass)
    return out
