"""Write the forms of a bundle, each whether or not another one fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from bundles.manifest import Precision, PrecisionName
from export.checkpoint.source import Source
from export.checkpoint.tokenizer import batches
from export.checks.engines import Inputs
from export.checks.gate import MEASURED_BATCH, Gate
from export.checks.thresholds import misses, refusal
from export.errors import ExportError
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
    """The forms of a bundle, and why others failed."""

    forms: dict[PrecisionName, Precision]
    failed: dict[PrecisionName, str]


class Forms:
    """Writes and measures the forms of one source.

    Args:
        source: the checkpoint.
        tokenizer: the bundle's tokenizer.
        fp32: the unfused fp32 graph.
        calibration: passages to calibrate int8 and to measure the ranges of fp16.
        gate: measures the graphs.
        keep_float: regular expression for names of operators that int8 leaves in floating point.
        accept: forms to write even if they miss a threshold.
        threads: processor threads.
        report: called with each step.
        note: called with what the user should read.
    """

    def __init__(
        self,
        source: Source,
        tokenizer: Tokenizer,
        fp32: Path,
        calibration: list[str],
        gate: Gate,
        *,
        keep_float: str | None,
        accept: Collection[PrecisionName],
        threads: int,
        report: Report,
        note: Callable[[str], None],
    ) -> None:
        self._source, self._tokenizer, self._fp32 = source, tokenizer, fp32
        self._calibration, self._gate = calibration, gate
        self._keep_float, self._accept, self._threads = keep_float, accept, threads
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
        written = {
            name: Precision(
                runtime="openvino" if name == "int8" else "onnx",
                file=FILES[name],
                kernels=one.kernels,
                parity=one.parity,
                ranges=None if name == "int8" else self._half.ranges,
                repair=one.repair,
                accepted=one.accepted,
            )
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
        # texts of similar length need little padding
        inputs = self._inputs(sorted(self._calibration, key=len), MEASURED_BATCH)
        step = "measuring the range of values for fp16"
        fused = fp16.fuse(
            self._source,
            self._fp32,
            inputs,
            threads=self._threads,
            advance=lambda share: self._report(step, share),
        )
        return Half(fused, self._folder("fp16"), self._threads, self._report)

    def _integer(self) -> Integer:
        step = "calibrating the int8 graph"
        quantised = int8.quantise(
            self._fp32,
            self._inputs(self._calibration, 1),
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
        parity = self._gate.measure({"packed": graph})["packed"]
        missed = misses(parity)
        if missed and not accept:
            raise refusal("packed", parity)
        return Made(kernels, parity, None, missed)

    def _folder(self, name: PrecisionName) -> Path:
        folder = self._fp32.parent / name
        folder.mkdir(exist_ok=True)
        return folder

    def _inputs(self, texts: list[str], size: int) -> list[Inputs]:
        return batches(
            self._tokenizer,
            texts,
            max_tokens=self._source.max_tokens,
            pad_token_id=int(self._source.tokenizer.pad_token_id),
            size=size,
        )
