"""``docsplit-export inspect`` and ``verify``: print what a bundle holds, and repeat its gate."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from docsplit.bundles import format as bundle
from docsplit.bundles.format import Bundle, RerankerBundle
from docsplit.bundles.manifest import (
    TOKENIZER,
    Contents,
    Manifest,
    Parity,
    PrecisionName,
    Ranges,
    Repair,
    RerankerManifest,
    TaskParity,
    WindowWeights,
)
from export.errors import ExportError
from export.options import add_gate_options, add_options, held_out
from export.progress import Progress, Report, unreported
from export.thresholds import AnyParity, agreed, check_figures, misses, refusal

if TYPE_CHECKING:
    from export.tasks import HeldOut


def main(arguments: Sequence[str]) -> int:
    """Print the content of a bundle; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="docsplit-export inspect",
        description="Print the content of a bundle: model, files, kernels, parity, losses at "
        "tasks, heads, lineage. The command compares every file with its digest.",
    )
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="the bundle's folder")
    parser.add_argument("--json", action="store_true", help="print the stored manifest")
    given = parser.parse_args(arguments)
    manifest = bundle.load_any(given.bundle).manifest
    console = Console(highlight=False, markup=False)
    if given.json:
        console.print(manifest.model_dump_json(indent=2, exclude_unset=True), soft_wrap=True)
        return 0
    if isinstance(manifest, RerankerManifest):
        _print(console, [("kind", "re-ranker"), *_common(manifest)])
        _precisions(console, manifest, _RERANKER)
        _forms(console, manifest)
    else:
        _model(console, manifest)
        _precisions(console, manifest, _ENCODER)
        _forms(console, manifest)
        _tasks(console, manifest)
        _heads(console, manifest)
    _files(console, manifest)
    return 0


def _model(console: Console, manifest: Manifest) -> None:
    prompts = ", ".join(manifest.prompts) or "none"
    if manifest.default_prompt is not None:
        prompts += f"; default {manifest.default_prompt}"
    name, revision, *rest = _common(manifest)
    weights = manifest.window_weights
    own = [
        ("vectors", f"{manifest.dimensions} dimensions, {manifest.pooling} pooling, unit length"),
        ("windows", f"weighed by their {weights.unit}; the first counts {weights.first:g} times"),
        ("prompts", prompts),
        ("shorter vectors", ", ".join(map(str, manifest.matryoshka)) or "none declared"),
    ]
    _print(console, [name, revision, *own, *rest])


def _common(manifest: Contents[Any]) -> list[tuple[str, str]]:
    lineage = manifest.lineage
    return [
        ("name", manifest.name),
        ("revision", manifest.revision),
        ("window", f"{manifest.max_tokens} tokens"),
        ("licence", manifest.licence),
        ("source", f"{lineage.source}, weights {lineage.source_sha256[:12]}"),
        ("settings", ", ".join(f"{k} {v}" for k, v in lineage.settings.items() if v != "")),
        ("packages", ", ".join(f"{k} {v}" for k, v in lineage.packages.items())),
    ]


def _print(console: Console, rows: list[tuple[str, str]]) -> None:
    table = Table(show_header=False, box=None)
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)


# columns of figures: what is printed of a parity, and how
_ENCODER = {
    "cosine mean": ("cosine_mean", ".6f"),
    "min": ("cosine_min", ".6f"),
    "same neighbour": ("neighbour_agreement", ".1%"),
    "paragraphs": ("paragraphs", "d"),
}
_RERANKER = {
    "Kendall's tau": ("kendall_tau", ".4f"),
    "same first": ("same_first", ".1%"),
    "score error mean": ("score_error_mean", ".5f"),
    "max": ("score_error_max", ".5f"),
    "pairs": ("pairs", "d"),
}


def _precisions(
    console: Console, manifest: Contents[Any], columns: Mapping[str, tuple[str, str]]
) -> None:
    table = Table("", *columns, "engine", "kernels", title="precisions")
    for name, precision in manifest.precisions.items():
        parity = precision.parity
        figures = (f"{getattr(parity, figure):{form}}" for figure, form in columns.values())
        kernels = ", ".join(f"{count} {kernel}" for kernel, count in precision.kernels.items())
        table.add_row(name, *figures, parity.engine, kernels)
    console.print(table)


def _forms(console: Console, manifest: Contents[Any]) -> None:
    for name, precision in manifest.precisions.items():
        _ranges(console, name, precision.ranges)
        _repair(console, name, precision.repair)
        if precision.comparison is not None:
            for line in precision.comparison.lines():
                console.print(f"{name}: {line}", soft_wrap=True)
        for miss in precision.accepted:
            console.print(f"{name}: accepted at export although {miss}", soft_wrap=True)


def _ranges(console: Console, name: str, ranges: Ranges | None) -> None:
    if ranges is None:
        return
    console.print(
        f"{name}: largest activation {ranges.largest:,} at {ranges.largest_at}, on "
        f"{ranges.passages} passages; {len(ranges.fp32_nodes)} nodes are beyond {ranges.limit:,} "
        "and stay fp32",
        soft_wrap=True,
    )
    for node, wide in ranges.fp32_nodes.items():
        console.print(f"  {node} ({wide.kernel}): {wide.of} of {wide.magnitude:,}", soft_wrap=True)


def _repair(console: Console, name: str, repair: Repair | None) -> None:
    if repair is None:
        return
    before = ", ".join(f"{figure} {value:.6f}" for figure, value in repair.before.items())
    console.print(
        f"{name}: {len(repair.kept)} operators stay in floating point, "
        f"{repair.multiplications:.1%} of the multiplications; without that {before}",
        soft_wrap=True,
    )
    for operator, kept in repair.kept.items():
        console.print(f"  {operator} ({kept.kernel}): error {kept.error:.2g}", soft_wrap=True)


def _tasks(console: Console, manifest: Manifest) -> None:
    rows = [(name, one) for name, p in manifest.precisions.items() for one in p.parity.tasks]
    if not rows:
        return
    columns = ("", "task", "data", "documents", "answers", "metric")
    table = Table(*columns, title="tasks on held-out data")
    for heading in ("graph", "source", "loss", "allowed"):
        table.add_column(heading, justify="right")
    for name, one in rows:
        figures = (f"{value:.4f}" for value in (one.graph, one.source, one.loss))
        described = (name, one.task, one.data, str(one.documents), str(one.cases), one.metric)
        table.add_row(*described, *figures, str(one.threshold))
    console.print(table)


def _heads(console: Console, manifest: Manifest) -> None:
    if not manifest.heads:
        return
    table = Table("", "kind", "labels", "report", title="heads")
    for name, head in manifest.heads.items():
        figures = (
            f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
            for key, value in head.report.items()
            if isinstance(value, int | float)
        )
        table.add_row(name, head.kind, ", ".join(head.labels), ", ".join(figures))
    console.print(table)


def _files(console: Console, manifest: Contents[Any]) -> None:
    table = Table(title=f"{sum(f.bytes for f in manifest.files.values()) / 1e6:.1f} MB")
    table.add_column("file")
    table.add_column("MB", justify="right")
    table.add_column("sha256")
    for name, entry in manifest.files.items():
        table.add_row(name, f"{entry.bytes / 1e6:.2f}", entry.sha256[:12])
    console.print(table)


def verify_main(arguments: Sequence[str]) -> int:
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
    add_gate_options(parser)
    add_options(parser)
    given = parser.parse_args(arguments)
    opened = bundle.load_any(given.bundle)
    source = given.source or opened.manifest.lineage.source
    from export.requirements import absence

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
    from tokenizers import Tokenizer

    from export.engines import can_run
    from export.gate import check_weights, measure_all
    from export.pipeline import open_gate
    from export.source import check_no_tasks, open_checkpoint
    from export.tasks import check_texts, read_tasks
    from export.texts import PEPS, read_passages

    torch.set_num_threads(threads)
    given = dict(thresholds or {})
    manifest, reranker = opened.manifest, isinstance(opened, RerankerBundle)
    check_figures(given, reranker=reranker)
    if reranker:
        check_no_tasks(source, held_out)
    tasks = read_tasks(held_out, calibration or PEPS)
    precisions = manifest.precisions
    checkpoint = open_checkpoint(
        source,
        reranker=reranker,
        max_tokens=manifest.max_tokens,
        # older bundles have that of the class
        tokenizer=manifest.lineage.settings.get("tokenizer") or "class",
        special_tokens_in_text=manifest.lineage.settings.get("special_tokens_in_text", "control"),
        trust_remote_code=trust_remote_code,
        half=any(precision.accepted for precision in precisions.values()),
        any_family=manifest.lineage.settings.get("through") == "optimum",
    )
    if checkpoint.weights_digest() != manifest.lineage.source_sha256:
        raise ExportError(
            f"{source} is not the bundle's source: its weights differ; name the checkpoint with "
            "--source"
        )
    check_weights(checkpoint)
    passages = read_passages(calibration, parity=paragraphs, max_tokens=manifest.max_tokens)
    check_texts(tasks, passages.calibration)
    gate = open_gate(
        checkpoint,
        Tokenizer.from_file(str(opened.path(TOKENIZER))),
        passages.parity,
        tasks,
        threads=threads,
        report=report,
        thresholds=agreed(manifest) | given,
        weights=manifest.window_weights if isinstance(manifest, Manifest) else WindowWeights(),
    )
    found = measure_all(gate, {n: opened.graph(n) for n in precisions if can_run(n)})
    for name, parity in found.items():
        if misses(parity) and not precisions[name].accepted:
            raise refusal(name, parity)
    return found
