"""What does an index of a million documents cost? This command extrapolates from a few.

    python -m benchmarks.index.scaling examples/peps/documents.jsonl.gz --documents 100

The command runs ``docsplit-index`` on documents drawn from a file. It measures seconds, peak
memory, and the disk space of the optimized index. Seconds and disk space grow with the number of
documents. The memory of the process does not, because batches are bounded. The command subtracts a
run on one document, because the start costs the same for any number.
``benchmarks.index.size`` measures the vector index.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.rig import documents

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command: seconds, MB of memory and of disk."""

    seconds: float
    memory: float
    disk: float


def main() -> None:
    """Index, measure, multiply."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--price", type=float, default=0.04, help="price of a core for an hour")
    given = parser.parse_args()
    texts = documents.read(given.source, given.documents)
    one, all_ = index(texts[:1]), index(texts)
    cores = len(os.sched_getaffinity(0))
    factor = MILLION / (len(texts) - 1)
    hours = (all_.seconds - one.seconds) * factor / 3600
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    words = sum(len(text.split()) for text in texts) / len(texts)
    table = Table(title=f"{len(texts)} documents of {words:,.0f} words, {cores} cores")
    for heading in ("", "measured", "a million"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("hours on this machine", f"{all_.seconds / 3600:.3f}", f"{hours:,.0f}")
    table.add_row("core hours", "", f"{hours * cores:,.0f}")
    table.add_row(f"cost at {given.price} a core hour", "", f"{hours * cores * given.price:,.0f}")
    table.add_row("memory of the process, MB", f"{all_.memory:,.0f}", f"{all_.memory:,.0f}")
    disk = (all_.disk - one.disk) * factor / 1000
    table.add_row("disk, GB", f"{all_.disk / 1000:.3f}", f"{disk:,.1f}")
    share = megabytes / len(texts) * MILLION / 1000
    table.add_row("texts, uncompressed, GB", f"{megabytes / 1000:.3f}", f"{share:,.1f}")
    Console().print(table)


def index(texts: list[str]) -> Run:
    """Index documents in a separate process."""
    with tempfile.TemporaryDirectory() as work:
        rows = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)]
        file = Path(work, "documents.jsonl")
        file.write_text("\n".join(rows) + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "service.bulk", str(file), "--index", "scaling"]
        started = time.monotonic()
        subprocess.run([*command, f"--index-path={work}/index"], check=True)
        seconds = time.monotonic() - started
        # the largest of all child processes so far; runs go from small to large
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
        held = [p.stat().st_size for p in Path(work, "index").rglob("*") if p.is_file()]
        return Run(seconds, memory, sum(held) / 1e6)


if __name__ == "__main__":
    main()
