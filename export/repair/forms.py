"""The numeric forms whose operators can stay in floating point one by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import openvino as ov

from docsplit.bundles.manifest import PrecisionName, Ranges
from export.checks.engines import Inputs
from export.graphs import fp16, int8
from export.progress import Report
from export.repair import quantisers, rounding
from export.repair.choice import Choice

_STEP = "measuring what each operator's rounding costs the {} graph"


class Form(Protocol):
    """One numeric form of a graph."""

    @property
    def name(self) -> PrecisionName: ...

    @property
    def graph(self) -> Path:
        """The written graph."""
        ...

    def write(self, kept: Collection[str] = ()) -> dict[str, int]:
        """Write the graph with the operators ``kept`` in floating point; returns the number of
        each kernel."""
        ...

    def choice(self, inputs: Sequence[Inputs]) -> Choice:
        """Measure on ``inputs`` what the rounding of each operator costs."""
        ...


class Half:
    """fp16: a graph in which each operator computes in fp16 or in fp32."""

    name: PrecisionName = "fp16"

    def __init__(self, fused: fp16.Fused, folder: Path, threads: int, report: Report) -> None:
        self._fused, self._folder, self._threads, self._report = fused, folder, threads, report
        self.graph = folder / fp16.FILE

    @property
    def ranges(self) -> Ranges:
        """The ranges of the graph's values."""
        return self._fused.ranges

    def write(self, kept: Collection[str] = ()) -> dict[str, int]:
        self._report("writing the fp16 graph")
        return fp16.write_fp16(self._fused, self._folder, kept)

    def choice(self, inputs: Sequence[Inputs]) -> Choice:
        step, fused = _STEP.format(self.name), self._fused
        for place, node in enumerate(fused.model.graph.node):
            node.name = node.name or f"{node.op_type}_at_{place}"
        found = rounding.measure_roundings(
            fused.model,
            inputs,
            outside={*fused.exact, *fused.ranges.fp32_nodes},
            threads=self._threads,
            advance=lambda share: self._report(step, share),
        )
        return Choice(found, rounding.multiplications(fused.model.graph))


class Integer:
    """int8: a graph in which each product reads quantised activations or not."""

    name: PrecisionName = "int8"

    def __init__(self, quantised: ov.Model, folder: Path, threads: int, report: Report) -> None:
        self._quantised, self._folder = quantised, folder
        self._threads, self._report = threads, report
        self.graph = folder / int8.FILE

    @cached_property
    def _groups(self) -> list[quantisers.Group]:
        return quantisers.groups(self._quantised)

    def write(self, kept: Collection[str] = ()) -> dict[str, int]:
        self._report("writing the int8 graph")
        model = quantisers.without(self._quantised, self._groups, kept)
        return int8.write_int8(model, self._folder)

    def choice(self, inputs: Sequence[Inputs]) -> Choice:
        step = _STEP.format(self.name)
        found = quantisers.measure_quantisers(
            self._quantised,
            self._groups,
            inputs,
            threads=self._threads,
            advance=lambda share: self._report(step, share),
        )
        return Choice(found, quantisers.multiplications(self._quantised))
