"""``docsplit-export inspect``: print the content of a bundle."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from docsplit.bundles import format as bundle
from docsplit.bundles.manifest import Contents, Manifest, Ranges, Repair, RerankerManifest


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
        console.print(
            manifest.model_dump_json(indent=2, exclude_unset=True), markup=False, soft_wrap=True
        )
        return 0
    if isinstance(manifest, RerankerManifest):
        _print(console, [("kind", "re-ranker"), *_common(manifest)])
        _ranks(console, manifest)
        _forms(console, manifest)
    else:
        _model(console, manifest)
        _precisions(console, manifest)
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


def _ranks(console: Console, manifest: RerankerManifest) -> None:
    table = Table(title="precisions")
    for heading in ("", "Kendall's tau", "same first", "score error mean", "max", "pairs"):
        table.add_column(heading)
    for heading in ("engine", "kernels"):
        table.add_column(heading)
    for name, precision in manifest.precisions.items():
        parity = precision.parity
        table.add_row(
            name,
            f"{parity.kendall_tau:.4f}",
            f"{parity.same_first:.1%}",
            f"{parity.score_error_mean:.5f}",
            f"{parity.score_error_max:.5f}",
            str(parity.pairs),
            parity.engine,
            ", ".join(f"{count} {kernel}" for kernel, count in precision.kernels.items()),
        )
    console.print(table)


def _precisions(console: Console, manifest: Manifest) -> None:
    table = Table(title="precisions")
    for heading in ("", "cosine mean", "min", "same neighbour", "paragraphs", "engine", "kernels"):
        table.add_column(heading)
    for name, precision in manifest.precisions.items():
        parity = precision.parity
        table.add_row(
            name,
            f"{parity.cosine_mean:.6f}",
            f"{parity.cosine_min:.6f}",
            f"{parity.neighbour_agreement:.1%}",
            str(parity.paragraphs),
            parity.engine,
            ", ".join(f"{count} {kernel}" for kernel, count in precision.kernels.items()),
        )
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
    table = Table(title="tasks on held-out data")
    for heading in ("", "task", "data", "documents", "answers", "metric"):
        table.add_column(heading)
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
    table = Table(title="heads")
    for heading in ("", "kind", "labels", "report"):
        table.add_column(heading)
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
