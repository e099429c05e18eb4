"""Compare the fp16 graph that optimum made with the one traced here, and recommend one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from docsplit.bundles.manifest import ComparedGraph, Comparison, Exporter, Parity, Precision
from export.checkpoint.requirements import check_family, first_line
from export.checkpoint.source import Source
from export.checks.engines import Inputs
from export.checks.gate import Gate
from export.checks.thresholds import misses
from export.errors import ExportError
from export.graphs import fp16
from export.graphs.graph import write_graph
from export.progress import Report

# A smaller share of the time is noise.
_NOTABLE = 0.05


def compare(
    source: Source,
    gate: Gate,
    form: Precision,
    graph: Path,
    batches: Sequence[Inputs],
    scratch: Path,
    *,
    threads: int,
    report: Report,
) -> Comparison:
    """Trace the encoder here, too, and measure both fp16 graphs on the same passages, in turns.

    Args:
        source: the checkpoint.
        gate: measures parity and time.
        form: optimum's fp16 form, as it was written.
        graph: its file.
        batches: real inputs to measure the range of values.
        scratch: a folder for the other graph.
        threads: processor threads.
        report: called with each step.
    """
    graphs: dict[Exporter, ComparedGraph] = {}
    failed: dict[Exporter, str] = {}
    held: dict[Exporter, bool] = {"optimum": not form.accepted}
    files = {"optimum": graph}
    parities = {"optimum": form.parity}
    try:
        files["torch"] = _trace(source, batches, scratch, threads, report)
        parities["torch"] = cast(Parity, gate.parity("fp16", files["torch"]).parity)
        held["torch"] = not misses(parities["torch"])
    except ExportError as error:
        files.pop("torch", None)
        failed["torch"] = str(error)
    seconds = gate.race(files)
    for name in held:
        parity = parities[name]
        graphs[name] = ComparedGraph(
            kernels=fp16.kernels_of(files[name]),
            figures={figure: float(getattr(parity, figure)) for figure in parity.thresholds},
            seconds=seconds[name],
        )
    recommended, reason = recommend(graphs, held)
    return Comparison(
        written="optimum", recommended=recommended, reason=reason, graphs=graphs, failed=failed
    )


def recommend(
    graphs: Mapping[Exporter, ComparedGraph], held: Mapping[Exporter, bool]
) -> tuple[Exporter, str]:
    """The graph to prefer, and why.

    Args:
        graphs: those that could be made.
        held: whether each holds its thresholds.
    """
    if "torch" not in graphs:
        return "optimum", "there is no other graph"
    if held["torch"] != held["optimum"]:
        better: Exporter = "torch" if held["torch"] else "optimum"
        return better, "the other graph misses a threshold"
    ratio = graphs["optimum"].seconds / graphs["torch"].seconds
    if ratio < 1 - _NOTABLE:
        return "optimum", f"it takes {ratio:.2f} of the other graph's time"
    if ratio > 1 + _NOTABLE:
        return "torch", f"it takes {1 / ratio:.2f} of the other graph's time"
    return "torch", "both are equally fast, and it needs no second environment"


def _trace(
    source: Source, batches: Sequence[Inputs], scratch: Path, threads: int, report: Report
) -> Path:
    """Write the fp16 graph of a plain export; it is not repaired."""
    check_family(source.encoder, source.name)
    folder = scratch / "torch"
    folder.mkdir()
    step = "tracing the graph to compare with"
    report(step)
    try:
        write_graph(source, folder / "model.onnx")
        fused = fp16.fuse(
            source,
            folder / "model.onnx",
            batches,
            threads=threads,
            advance=lambda share: report(step, share),
        )
        fp16.write_fp16(fused, folder)
    except Exception as error:  # torch and ONNX Runtime raise different errors
        raise ExportError(f"{source.name}: cannot be traced: {first_line(error)}") from error
    return folder / fp16.FILE
