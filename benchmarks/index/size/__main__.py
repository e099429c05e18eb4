"""An index of millions of vectors: building, searching, memory, and writes of single documents.

    python -m benchmarks.index.size FOLDER --vectors vectors.npy

Vectors come from a ``.npy`` file (float32 or float16 ``[rows, dimensions]``), for example from
``benchmarks.index.drawn``. The first ones are queries, the others become documents of a few words.
If FOLDER has no index yet, the command builds it there. It finds the exact answers by comparing
with every vector. A process that has nothing but the index then sends the queries, one at a time,
as ``POST /similar`` does between embedding and answering, with and without a filter that one
document in a hundred passes. In the end it writes single documents and waits until each is found;
after every 64 of them maintenance runs, as in a service.

With ``--append`` the documents have no windows, and one commit appends all of them: it compares no
ids. That is for ten million.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.index.size.building import CACHE_BYTES, K, append, build, exact
from benchmarks.index.size.measuring import measure
from benchmarks.rig.report import Verdict

# files in FOLDER: the exact answers of the queries, and figures of the building
TRUTH, BUILT = "truth.npy", "built.json"


def main() -> None:
    """Build, find the exact answers, measure in another process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--rows", type=int, help="documents of a new index; default: all vectors")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--writes", type=int, default=100)
    parser.add_argument("--append", action="store_true", help="all in one commit, without windows")
    parser.add_argument("--cache-bytes", type=int, default=CACHE_BYTES)
    parser.add_argument("--json", type=Path, help="adds a line with the figures to this file")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    vectors = np.load(given.vectors, mmap_mode="r")
    queries = np.array(vectors[: given.queries], np.float32)
    if given.measure:
        truth = np.load(given.folder / TRUTH)
        print(json.dumps(asyncio.run(measure(given, queries, truth))))
        return
    console = Console()
    rows = vectors[given.queries :]
    if given.rows is not None:
        rows = rows[: given.rows]
    if not (given.folder / "indexes").exists():
        make = append(given.folder, rows, console) if given.append else None
        built = asyncio.run(make or build(given.folder, rows, console))
        (given.folder / BUILT).write_text(json.dumps(built))
    if not (given.folder / TRUTH).exists():
        np.save(given.folder / TRUTH, exact(rows, queries))
    command = [sys.executable, "-m", "benchmarks.index.size", *sys.argv[1:], "--measure"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures = {"rows": len(rows), **json.loads((given.folder / BUILT).read_text())}
    figures |= json.loads(done.stdout)
    report(figures, rows.shape, console)
    if given.json is not None:
        with given.json.open("a") as file:
            file.write(json.dumps(figures) + "\n")


def report(figures: dict[str, Any], shape: tuple[int, ...], console: Console) -> None:
    """Print what was measured, and whether the aims for a million hold."""
    console.print(f"{shape[0]:,} x {shape[1]}, load {figures['load']:.1f} at the start")
    for name in ("all", "1 %"):
        own = figures[name]
        p50, p99 = own["p50"] * 1000, own["p99"] * 1000
        console.print(f"{name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, recall@{K} {own['recall']:.3f}")
    console.print(f"vector index {figures['vector index'] / 1e6:,.0f} MB")
    verdicts = [
        Verdict("p99, ms", figures["all"]["p99"] * 1000, 30, most=True),
        Verdict("recall", figures["all"]["recall"], 0.97),
        Verdict("recall under the filter", figures["1 %"]["recall"], 0.95),
        Verdict("anonymous memory, MB", figures["memory"] / 1e6, 1500, most=True),
    ]
    if figures["writes"]:
        writes = np.array(figures["writes"]) * 1000
        tenth = -(-len(writes) // 10)
        console.print(
            f"single writes until they are found: p50 {np.median(writes):.0f} ms, the first tenth "
            f"{np.median(writes[:tenth]):.0f} ms, the last {np.median(writes[-tenth:]):.0f} ms"
        )
        verdicts.append(Verdict("write, ms", float(np.median(writes)), 300, most=True))
    for verdict in verdicts:
        held = "held" if verdict.held else "missed"
        console.print(f"{verdict.aim}: {verdict.figure:.4g} ({verdict.bound:g}) {held}")


if __name__ == "__main__":
    main()
