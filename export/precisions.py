"""Write the forms of a bundle, each whether or not another one fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from docsplit.bundles.manifest import PrecisionName
from export.checkpoint.source import Checkpoint
from export.checks.engines import Inputs
from export.checks.gate import MEASURED_BATCH, Judge
from export.checks.thresholds import misses, refusal
from export.errors import ExportError, IncompleteError
from export.graphs import fp16, int8, packed
from export.progress import Report
from export.repair.forms import Half, Integer
from export.repair.repairing import Made, make

FILES: Mapping[PrecisionName, str] = {
    "fp16": fp16.FILE,
    "packed": packed.FILE,
    "int8": int8.FILE,
}


class Written(NamedTuple):
    """The fields of a bundle's forms in the manifest, and why others failed."""

    forms: dict[PrecisionName, dict[str, object]]
    failed: dict[PrecisionName, str]

    def check_complete(self, dest: Path) -> None:
        """Raise an ``IncompleteError`` if a form of the bundle at ``dest`` failed."""
        if self.failed:
            raise IncompleteError(
                f"{dest}: written without {' and '.join(self.failed)}: "
                + "; ".join(self.failed.values())
            )


class Forms:
    """Writes and measures the forms of one source.

    Args:
        source: the checkpoint.
        fp32: the unfused fp32 graph.
        calibration: gives real inputs in batches of a size, to calibrate int8 and to measure the
            ranges of fp16. Batches of several texts hold texts of similar length.
        gate: measures the graphs.
        keep_float: regular expression for names of operators that int8 leaves in floating point.
        accept: forms to write even if they miss a threshold.
        unverified: what nobody checked about the source, for the manifest.
        fused: the fp32 graph, if something else has already fused it.
        threads: processor threads.
        report: called with each step.
        note: called with what the user should read.
    """

    def __init__(
        self,
        source: Checkpoint,
        fp32: Path,
        calibration: Callable[[int], list[Inputs]],
        gate: Judge,
        *,
        keep_float: str | None,
        accept: Collection[PrecisionName],
        unverified: str | None = None,
        fused: Path | None = None,
        threads: int,
        report: Report,
        note: Callable[[str], None],
    ) -> None:
        self._source, self._fp32, self._fused = source, fp32, fused
        self._calibration, self._gate = calibration, gate
        self._keep_float, self._accept, self._threads = keep_float, accept, threads
        self._unverified = [] if unverified is None else [unverified]
        self._report, self._note = report, note

    def make(self, wanted: Sequence[PrecisionName], bundle: Path) -> Written:
        """Write the forms and move those that hold into ``bundle``.

        Raises:
            ExportError: every form fails.
        """
        made: dict[PrecisionName, Made] = {}
        failed: dict[PrecisionName, str] = {}
        # the packed graph is made of the fp16 graph, and int8 takes longest
        for name in [name for name in FILES if name in wanted]:
            try:
                made[name] = self._made(name)
            except ExportError as error:
                failed[name] = str(error)
        if not made:
            raise ExportError("; ".join(failed.values()))
        for name in made:
            for file in self._folder(name).iterdir():
                file.rename(bundle / file.name)
        written: dict[PrecisionName, dict[str, object]] = {
            name: {
                "runtime": "openvino" if name == "int8" else "onnx",
                "file": FILES[name],
                "kernels": one.kernels,
                "parity": one.parity,
                "ranges": None if name == "int8" else self._half.ranges,
                "repair": one.repair,
                "accepted": [*self._unverified, *one.accepted],
            }
            for name, one in made.items()
        }
        return Written(written, failed)

    def _made(self, name: PrecisionName) -> Made:
        accept = name in self._accept
        if name == "packed":
            return self._packed(accept)
        form = self._half if name == "fp16" else self._integer()
        return make(form, self._gate, accept=accept, note=self._note)

    @cached_property
    def _half(self) -> Half:
        step = "measuring the range of values for fp16"
        fused = fp16.fuse(
            self._source,
            self._fp32,
            self._calibration(MEASURED_BATCH),
            fused=self._fused,
            threads=self._threads,
            advance=lambda share: self._report(step, share),
        )
        return Half(fused, self._folder("fp16"), self._threads, self._report)

    def _integer(self) -> Integer:
        step = "calibrating the int8 graph"
        quantised = int8.quantise(
            self._fp32,
            self._calibration(1),
            keep_float=self._keep_float,
            advance=lambda share: self._report(step, share),
        )
        return Integer(quantised, self._folder("int8"), self._threads, self._report)

    def _packed(self, accept: bool) -> Made:
        if not self._half.graph.is_file():
            self._half.write()
        self._report("writing the packed graph")
        kernels = packed.write_packed(self._half.graph, self._folder("packed"))
        graph = self._folder("packed") / packed.FILE
        parity = self._gate.parity("packed", graph).parity
        parity = self._gate.with_losses("packed", graph, parity)
        missed = misses(parity)
        if missed and not accept:
            raise refusal("packed", parity)
        return Made(kernels, parity, None, missed)

    def _folder(self, name: PrecisionName) -> Path:
        folder = self._fp32.parent / name
        folder.mkdir(exist_ok=True)
        return folder
