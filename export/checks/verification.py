"""``docsplit-export verify``: check a bundle's digests and repeat its gate."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docsplit.bundles import format as bundle
from docsplit.bundles.format import Bundle, RerankerBundle
from docsplit.bundles.manifest import TOKENIZER, Contents, Parity, PrecisionName, TaskParity
from docsplit.windowing.weighing import Weighing
from export.checks.options import add_gate_options
from export.checks.thresholds import (
    AnyParity,
    agreed,
    check_figures,
    misses,
    refusal,
)
from export.errors import ExportError
from export.progress import Progress, Report, unreported
from export.tasks.options import add_options, held_out

if TYPE_CHECKING:
    from export.checks.gate import Judge
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
    opened = bundle.load_any(given.bundle)
    source = given.source or opened.manifest.lineage.source
    from rich.console import Console

    from export.hub import absence

    # the lineage has a folder's name, never its path
    reason = None if given.source else absence(source)
    if reason is not None:
        raise ExportError(
            f"{given.bundle}: its source is called {source!r} ({reason}); give its folder with "
            "--source"
        )
    console = Console(highlight=False, markup=False)
    with Progress(Console(stderr=True)) as progress:
        measured = verify(
            opened,
            source,
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
        if isinstance(parity, Parity) and isinstance(stated, Parity):
            console.print(
                f"{name}: cosine mean {parity.cosine_mean:.6f} (the bundle says "
                f"{stated.cosine_mean:.6f}), min {parity.cosine_min:.6f} ({stated.cosine_min:.6f}),"
                f" same nearest neighbour {parity.neighbour_agreement:.1%} "
                f"({stated.neighbour_agreement:.1%}); {parity.engine}",
                soft_wrap=True,
            )
            for task in parity.tasks:
                console.print(f"{name}: {task} {_stated(task, stated)}", soft_wrap=True)
        else:
            console.print(f"{name}: {parity}", soft_wrap=True)
            console.print(f"{name}: the bundle says {stated}", soft_wrap=True)
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
    opened: Bundle | RerankerBundle,
    source: str,
    *,
    trust_remote_code: bool = False,
    calibration: Path | None,
    paragraphs: int,
    held_out: HeldOut,
    threads: int,
    report: Report = unreported,
    thresholds: Mapping[str, float] | None = None,
) -> dict[PrecisionName, AnyParity]:
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

    from export.checks.engines import can_run
    from export.checks.gate import measure_all

    torch.set_num_threads(threads)
    given = dict(thresholds or {})
    check_figures(given, reranker=isinstance(opened, RerankerBundle))
    options = _Options(
        source,
        trust_remote_code=trust_remote_code,
        calibration=calibration,
        paragraphs=paragraphs,
        held_out=held_out,
        threads=threads,
        report=report,
        thresholds=agreed(opened.manifest) | given,
    )
    judge = (
        _pair_gate(opened, options)
        if isinstance(opened, RerankerBundle)
        else _gate(opened, options)
    )
    precisions = opened.manifest.precisions
    found = measure_all(judge, {n: opened.graph(n) for n in precisions if can_run(n)})
    for name, parity in found.items():
        if misses(parity) and not precisions[name].accepted:
            raise refusal(name, parity)
    return found


@dataclass(frozen=True)
class _Options:
    source: str
    trust_remote_code: bool
    calibration: Path | None
    paragraphs: int
    held_out: HeldOut
    threads: int
    report: Report
    thresholds: Mapping[str, float]

    def check(self, manifest: Contents[Any], digest: str) -> None:
        """Refuse a checkpoint whose weights have another digest than the bundle's source."""
        if digest != manifest.lineage.source_sha256:
            raise ExportError(
                f"{self.source} is not the bundle's source: its weights differ; name the "
                "checkpoint with --source"
            )


def _gate(opened: Bundle, options: _Options) -> Judge:
    from tokenizers import Tokenizer

    from export.checkpoint.source import open_source
    from export.checks.finite import check_weights
    from export.checks.gate import Gate
    from export.passages import PEPS, read_passages
    from export.tasks.held_out import read_tasks

    manifest = opened.manifest
    checkpoint = open_source(
        options.source,
        max_tokens=manifest.max_tokens,
        trust_remote_code=options.trust_remote_code,
        half=any(precision.accepted for precision in manifest.precisions.values()),
        any_family=manifest.lineage.settings.get("through") == "optimum",
    )
    options.check(manifest, checkpoint.weights_digest())
    check_weights(checkpoint)
    passages = read_passages(
        options.calibration, parity=options.paragraphs, max_tokens=manifest.max_tokens
    )
    tasks = read_tasks(options.held_out, options.calibration or PEPS, passages.calibration)
    weights = opened.manifest.window_weights
    return Gate(
        checkpoint,
        Tokenizer.from_file(str(opened.path(TOKENIZER))),
        passages.parity,
        tasks,
        threads=options.threads,
        report=options.report,
        thresholds=options.thresholds,
        weighing=Weighing(weights.unit, weights.first),
    )


def _pair_gate(opened: RerankerBundle, options: _Options) -> Judge:
    from docsplit.windowing.pairs import PairTokenizer
    from export.checks.finite import check_weights
    from export.passages import read_passages
    from export.reranker.gate import PairGate
    from export.reranker.pairs import make_pairs
    from export.reranker.source import check_no_tasks, open_pair_source

    check_no_tasks(options.source, options.held_out)
    manifest = opened.manifest
    checkpoint = open_pair_source(
        options.source,
        max_tokens=manifest.max_tokens,
        trust_remote_code=options.trust_remote_code,
    )
    options.check(manifest, checkpoint.weights_digest())
    check_weights(checkpoint)
    passages = read_passages(
        options.calibration, parity=options.paragraphs, max_tokens=manifest.max_tokens
    )
    tokenizer = PairTokenizer(opened.path(TOKENIZER), manifest.max_tokens, manifest.segment_offset)
    return PairGate(
        checkpoint,
        tokenizer,
        make_pairs(passages.parity, tokenizer),
        threads=options.threads,
        report=options.report,
        thresholds=options.thresholds,
    )
