"""The record of a run: its curve, its plot, and ``training.json``."""

import csv
import json
import resource
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from training.settings import Settings
from training.trainer.opening import Opened
from training.trainer.validation import Validation

# The record of each step of a run, as JSON lines, CSV and TensorBoard files.

STEPS = "steps.jsonl"
VALIDATIONS = "validations.jsonl"


class Curve:
    """The record of a run in its output folder.

    Each step appends a line. A run that resumes at a checkpoint first drops the later lines, so
    the record equals that of a run without interruption.
    """

    def __init__(self, folder: Path, *, tensorboard: bool, resume_at: int = 0) -> None:
        """Record into ``folder`` and keep its lines up to step ``resume_at``."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in (STEPS, VALIDATIONS):
            path = folder / name
            kept = [r for r in read_lines(path) if r["step"] <= resume_at]
            path.write_text("".join(json.dumps(r) + "\n" for r in kept), encoding="utf-8")
        self._steps = (folder / STEPS).open("a", encoding="utf-8", buffering=1)
        self._validations = (folder / VALIDATIONS).open("a", encoding="utf-8", buffering=1)
        self._board: Any = None
        if tensorboard:
            with warnings.catch_warnings():
                # The event writer uses deprecated calls of numpy and protobuf.
                warnings.simplefilter("ignore")
                from torch.utils.tensorboard import SummaryWriter

                self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=resume_at + 1)

    def step(self, record: Mapping[str, float]) -> None:
        """Record a step; ``record`` holds ``step``."""
        self._write(self._steps, "train", record)

    def validation(self, record: Mapping[str, float]) -> None:
        """Record a validation; ``record`` holds ``step``."""
        self._write(self._validations, "validation", record)

    def close(self) -> None:
        """Close the files and also write both records as CSV."""
        self._steps.close()
        self._validations.close()
        if self._board is not None:
            self._board.close()
        for name in (STEPS, VALIDATIONS):
            write_csv(self._folder / name)

    def _write(self, stream: Any, group: str, record: Mapping[str, float]) -> None:
        stream.write(json.dumps(record) + "\n")
        if self._board is not None:
            for key, value in record.items():
                if key != "step":
                    self._board.add_scalar(f"{group}/{key}", value, int(record["step"]))


def read_lines(path: Path) -> list[dict[str, float]]:
    """Records of a JSON lines file, without a last line that a kill left incomplete."""
    if not path.is_file():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def write_csv(path: Path) -> None:
    """Write the records of a JSON lines file as a CSV file next to it."""
    records = read_lines(path)
    if not records:
        return
    with path.with_suffix(".csv").open("w", newline="", encoding="utf-8") as stream:
        # an interrupted run of an older version has fewer figures in its first records
        names = dict.fromkeys(name for record in records for name in record)
        writer = csv.DictWriter(stream, fieldnames=list(names))
        writer.writeheader()
        writer.writerows(records)


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
    from matplotlib.figure import Figure

    steps = read_lines(folder / STEPS)
    validations = read_lines(folder / VALIDATIONS)
    figure = Figure(figsize=(11, 7), layout="constrained")
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


def run_record(
    settings: Settings,
    opened: Opened,
    *,
    steps: int,
    stopped_early: bool,
    seen: dict[str, int],
    processes: int,
    device: torch.device,
    seconds: float,
    before: Validation | None,
    after: Validation | None,
) -> dict[str, Any]:
    """The record of a finished run, as plain values.

    Args:
        seen: documents and tokens of all steps.
        seconds: time since the run was opened or last resumed.
        before: validation of the start weights.
        after: validation of the written model.
    """
    objective = settings.objective
    return {
        "settings": json.loads(settings.model_dump_json()),
        "objective": {
            "view": objective.view,
            "contrastive_loss": objective.contrastive,
            "mlm_weight": objective.mlm_factor,
            "mlm_head": opened.head_origin,
        },
        "data": {
            **asdict(opened.cache.counts),
            "training_documents": len(opened.train),
            "held_out_documents": len(opened.held),
            "links": opened.graph.counts if opened.graph else None,
            "cache": opened.cache.root.name,
        },
        "seed": settings.run.seed,
        "steps": steps,
        "stopped_early": stopped_early,
        "seen": seen,
        "processes": processes,
        "device": _device_name(device),
        "seconds": seconds,
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "metrics": {
            "before": asdict(before) if before else None,
            "after": asdict(after) if after else None,
        },
    }


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
