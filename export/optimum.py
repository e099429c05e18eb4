"""Graphs that optimum exports and optimises, and their comparison with those traced here."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from docsplit.bundles.manifest import ComparedGraph, Comparison, Exporter, Parity, Precision
from export import fp16
from export.engines import Inputs
from export.errors import ExportError, refused
from export.gate import Gate
from export.graph import OPSET, write_graph, write_joined
from export.onnx_folder import GraphEncoder
from export.progress import Report
from export.requirements import check_family, transformer_folder
from export.source import Source
from export.thresholds import misses

# Run ``optimum-cli``.
#
# optimum-onnx needs an older transformers than this project, so it lives in an environment of
# its own, and only its command is called.

# optimum finds no settings of this project's environment
_LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_VERSION = re.compile(r"`(\w+)` version: (\S+)")
# its last line may only say that something failed
_SAID_LINES = 3


class Optimum:
    """The program ``optimum-cli``.

    Args:
        program: its name on ``PATH``, or its path.

    Raises:
        ExportError: there is no such program.
    """

    def __init__(self, program: str) -> None:
        found = shutil.which(Path(program).expanduser())
        if found is None:
            raise ExportError(
                f"{program}: no such program; install optimum in an environment of its own "
                "(python -m venv optimum; optimum/bin/pip install 'docsplit[optimum]') and name "
                "its program: --optimum-cli optimum/bin/optimum-cli"
            )
        self._program = found

    def versions(self) -> dict[str, str]:
        """Versions of its packages, by names for a bundle's lineage."""
        found = dict(_VERSION.findall(self._run("env")))
        return {f"optimum's {name}" if name != "optimum" else name: v for name, v in found.items()}

    def export(self, model: str, folder: Path, *, trusted: bool) -> Path:
        """Export a transformer with optimum's configuration for its architecture.

        Args:
            model: folder or hub name of the transformer.
            folder: gets the graph, which returns token vectors in fp32, and its settings.
            trusted: run model code in the folder of the weights.

        Raises:
            ExportError: optimum fails, or writes no graph.
        """
        options = ["--task", "feature-extraction", "--library-name", "transformers"]
        options += ["--opset", str(OPSET), "--dtype", "fp32"]
        options += ["--trust-remote-code"] if trusted else []
        self._run("export", "onnx", "--model", model, *options, str(folder))
        return _graph(folder)

    def optimise(self, folder: Path, dest: Path) -> Path:
        """Optimise the graph of a folder at optimum's level O3.

        Raises:
            ExportError: optimum fails, for instance because it knows no fusions for the
                architecture.
        """
        self._run(
            "onnxruntime", "optimize", "--onnx_model", str(folder), "-O3", "--output", str(dest)
        )
        return _graph(dest)

    def _run(self, *arguments: str) -> str:
        settings = {name: v for name, v in os.environ.items() if name not in _LEFT_OUT}
        done = subprocess.run(  # noqa: S603 - the user names the program
            [self._program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=settings,
        )
        if done.returncode:
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise ExportError(
                f"optimum-cli {' '.join(arguments[:2])} failed: "
                f"{' '.join(said[-_SAID_LINES:]) or f'exit code {done.returncode}'}"
            )
        return done.stdout


def _graph(folder: Path) -> Path:
    found = sorted(folder.glob("*.onnx"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "no graph"
        raise ExportError(f"optimum-cli wrote {names}, but an encoder needs one graph")
    return found[0]


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
    with refused(f"{plain.name}: cannot be opened, which optimum-cli wrote"):
        encoder = GraphEncoder(plain, source.encoder.config)
    write_joined(encoder, source, fp32)
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
    with refused(f"{source.name}: cannot be traced"):
        write_graph(source, folder / "model.onnx")
        fused = fp16.fuse(
            source,
            folder / "model.onnx",
            batches,
            threads=threads,
            advance=lambda share: report(step, share),
        )
        fp16.write_fp16(fused, folder)
    return folder / fp16.FILE
