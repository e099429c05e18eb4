"""Write the graphs of an encoder through optimum."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from export.checkpoint.files import transformer_folder
from export.checkpoint.onnx_folder import GraphEncoder
from export.checkpoint.requirements import first_line
from export.checkpoint.source import Source
from export.errors import ExportError
from export.graphs.graph import write_joined
from export.optimum.program import Optimum
from export.progress import Report


@dataclass(frozen=True)
class Optimised:
    """What optimum made of an encoder.

    Attributes:
        fused: its graph at level O3, with pooling and normalisation; None if it has no fusions for
            the architecture.
        left_out: why there is no such graph.
        packages: versions of its packages.
    """

    fused: Path | None
    left_out: str | None
    packages: Mapping[str, str]


def write_graphs(
    source: Source, fp32: Path, optimum: Optimum, report: Report, *, trusted: bool
) -> Optimised:
    """Write the unfused graph with pooling and normalisation to ``fp32``, and optimise it.

    Args:
        source: the checkpoint.
        fp32: the file to write; further files go next to it.
        optimum: the program.
        report: called with each step.
        trusted: run model code in the folder of the weights.

    Raises:
        ExportError: optimum cannot export the architecture, or its graph has other inputs or
            outputs than an encoder's.
    """
    scratch = fp32.parent / "optimum"
    report("exporting through optimum")
    plain = optimum.export(transformer_folder(source.located), scratch / "plain", trusted=trusted)
    write_joined(_open(plain, source), source, fp32)
    report("optimising with optimum's O3")
    joined = scratch / "joined"
    joined.mkdir()
    # optimum chooses its fusions by the configuration
    shutil.copy(plain.with_name("config.json"), joined)
    for file in fp32.parent.glob(f"{fp32.name}*"):
        (joined / file.name).hardlink_to(file)
    packages = optimum.versions()
    try:
        return Optimised(optimum.optimise(joined, scratch / "fused"), None, packages)
    except ExportError as error:
        return Optimised(None, str(error), packages)


def _open(plain: Path, source: Source) -> GraphEncoder:
    try:
        return GraphEncoder(plain, source.encoder.config)
    except ExportError:
        raise
    except Exception as error:  # onnx and protobuf raise different errors
        raise ExportError(
            f"{plain.name}: cannot be opened, which optimum-cli wrote: {first_line(error)}"
        ) from error
