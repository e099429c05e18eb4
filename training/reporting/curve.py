"""The record of each step of a run, as JSON lines, CSV and TensorBoard files."""

import csv
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
