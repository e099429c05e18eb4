"""``docsplit-export verify``: check a bundle's digests and repeat its gate."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bundles import format as bundle
from bundles.format import Bundle
from bundles.manifest import TOKENIZER, Manifest, Parity, PrecisionName, TaskParity
from export.checks.options import add_gate_options
from export.checks.thresholds import floors, losses, misses, refusal
from export.errors import ExportError
from export.progress import Progress, Report, unreported
from export.tasks.options import add_options, held_out

if TYPE_CHECKING:
    from export.tasks.held_out import HeldOut


def main(arguments: Sequence[str]) -> int:
    """Run the gate over a bundle; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="docsplit-export verify",
        description="Compare every file of a bundle with its digest, and repeat the gate: encode "
        "real paragraphs with the fp32 source and with each graph on this machine. The exit status "
        "is 1 if a graph is too far from the source, loses too much at a task, or is not finite.",
    )
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="the bundle's folder")
    parser.add_argument(
        "--source", help="the checkpoint: folder or hub name (default: its name in the lineage)"
    )
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="same as in docsplit-export"
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="same as in docsplit-export"
    )
    parser.add_argument("--paragraphs", type=int, default=300, metavar="N", help="at least 200")
    add_gate_options(parser)
    add_options(parser)
    given = parser.parse_args(arguments)
    if given.paragraphs < 200:
        parser.error("--paragraphs: parity needs at least 200")
    opened = bundle.load(given.bundle)
    from rich.console import Console

    console = Console(highlight=False)
    with Progress(Console(stderr=True)) as progress:
        measured = verify(
            opened,
            given.source or opened.manifest.lineage.source,
            trust_remote_code=given.trust_remote_code,
            calibration=given.calibration,
            paragraphs=given.paragraphs,
            held_out=held_out(given),
            threads=given.threads,
            report=progress.report,
            thresholds=dict(given.threshold),
        )
    for name in [name for name in opened.manifest.precisions if name not in measured]:
        console.print(f"{name}: only its digest, because this machine cannot run it")
    for name, parity in measured.items():
        stated = opened.manifest.precisions[name].parity
        console.print(
            f"{name}: cosine mean {parity.cosine_mean:.6f} (the bundle says "
            f"{stated.cosine_mean:.6f}), min {parity.cosine_min:.6f} ({stated.cosine_min:.6f}), "
            f"same nearest neighbour {parity.neighbour_agreement:.1%} "
            f"({stated.neighbour_agreement:.1%}); {parity.engine}",
            soft_wrap=True,
        )
        for task in parity.tasks:
            console.print(f"{name}: {task} {_stated(task, stated)}", soft_wrap=True)
        for miss in misses(parity):
            console.print(f"{name}: accepted at export although {miss}", soft_wrap=True)
    return 0


def _stated(measured: TaskParity, parity: Parity) -> str:
    key = (measured.task, measured.data_sha256)
    for stated in parity.tasks:
        if (stated.task, stated.data_sha256) == key:
            return f"(the bundle says {stated.graph:.4f} and {stated.source:.4f})"
    return "(the bundle was not measured on this data)"


def verify(
    opened: Bundle,
    source: str,
    *,
    trust_remote_code: bool = False,
    calibration: Path | None,
    paragraphs: int,
    held_out: HeldOut,
    threads: int,
    report: Report = unreported,
    thresholds: Mapping[str, float] | None = None,
) -> dict[PrecisionName, Parity]:
    """Measure the parity of each precision that this machine can run.

    Args:
        source: folder or hub name of the bundle's source.
        trust_remote_code: run model code in the folder of its weights.
        calibration: file of real text; by default the PEPs of ``examples/peps``.
        paragraphs: number of paragraphs to encode.
        held_out: data for the loss at tasks.
        threads: processor threads.
        report: called with each step and its progress.
        thresholds: thresholds that replace those of the bundle.

        Raises:
            ExportError: the source is another one, there is too little text, or the gate refuses a
                graph.
            DataError: the held-out data cannot be read.
    """
    import torch
    from tokenizers import Tokenizer

    from export.checkpoint.source import open_source
    from export.checks.engines import can_run
    from export.checks.finite import check_weights
    from export.checks.gate import Gate
    from export.passages import PEPS, read_passages
    from export.tasks.held_out import read_tasks

    torch.set_num_threads(threads)
    manifest = opened.manifest
    checkpoint = open_source(
        source,
        source_name=None,
        max_tokens=manifest.max_tokens,
        trust_remote_code=trust_remote_code,
    )
    if checkpoint.weights_digest() != manifest.lineage.source_sha256:
        raise ExportError(
            f"{source} is not the bundle's source: its weights differ; name the checkpoint "
            "with --source"
        )
    check_weights(checkpoint)
    passages = read_passages(calibration, parity=paragraphs, max_tokens=manifest.max_tokens)
    tasks = read_tasks(held_out, calibration or PEPS, passages.calibration)
    tokenizer = Tokenizer.from_file(str(opened.path(TOKENIZER)))
    gate = Gate(
        checkpoint,
        tokenizer,
        passages.parity,
        tasks,
        threads=threads,
        report=report,
        thresholds=_agreed(manifest) | dict(thresholds or {}),
    )
    found = gate.measure({n: opened.graph(n) for n in manifest.precisions if can_run(n)})
    for name, parity in found.items():
        if misses(parity) and not manifest.precisions[name].accepted:
            raise refusal(name, parity)
    return found


def _agreed(manifest: Manifest) -> dict[str, float]:
    """The bundle's thresholds, as far as they are less strict than the usual ones."""
    found: dict[str, float] = {}
    for name, precision in manifest.precisions.items():
        usual = floors(name)
        for figure, value in precision.parity.thresholds.items():
            found[f"{name}.{figure}"] = min(value, usual.get(figure, value))
        for task in precision.parity.tasks:
            found[f"{name}.{task.task}"] = max(task.threshold, losses(name)[task.task])
    return found
