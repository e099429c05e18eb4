"""How long does a search for links take with many identifiers, and how much memory?

    git worktree add ../before COMMIT
    python -m benchmarks.index.found_links ../before . --documents 100000 --identifiers 20

The command takes turns: each run is a process of its own that reads the code of one checkout, makes
the names of all documents and reads the texts. Of the identifiers of each document every fifth is a
DOI, an arXiv id, a patent, a number of a series and a number of a contract. Each text of 2,000
words names ten identifiers. Times are of the processor, memory is the peak of the process.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

WORDS = 2000
MENTIONS = 10
TEXTS = 500


def main() -> None:
    """Run each checkout in turns and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path, nargs="+")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--identifiers", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        sys.stdout.write(json.dumps(worked(given.documents, given.identifiers)))
        return
    table = Table("checkout", "names, s", "texts, MB/s", "peak, MB", "names", "left out", "links")
    for _ in range(given.turns):
        for checkout in given.checkouts:
            command = [sys.executable, __file__, *sys.argv[1:], "--worker"]
            path = os.environ | {"PYTHONPATH": str(checkout.resolve())}
            run = subprocess.run(command, env=path, cwd=checkout, check=True, capture_output=True)
            figures = json.loads(run.stdout)
            table.add_row(str(checkout), *map(str, figures))
    Console().print(table)


def identifiers(number: int, count: int) -> Iterator[str]:
    """Some identifiers that no other document has."""
    for place in range(count):
        own = number * count + place
        yield (
            f"10.{1000 + own % 9000}/j.journal.{own}",
            f"{own // 100_000 % 40 + 10:02}{own % 12 + 1:02}.{own % 100_000:05}",
            f"US{5_000_000 + own}B2",
            f"rfc{own}",
            f"contract C-{own}",
        )[place % 5]


def worked(documents: int, count: int) -> tuple[float, float, int, int, int, int]:
    """Seconds for the names, MB of text a second, peak in MB, and numbers."""
    from docsplit.ranking.references import Named, References

    named = [
        Named(f"doc-{number}", f"A title of number {number}", (*identifiers(number, count),))
        for number in range(documents)
    ]
    start = time.process_time()
    references = References(named)
    names = time.process_time() - start
    draw = random.Random(0)
    words = ["water", "pump", "valve", "pressure", "in", "2019", "the", "of", "plants,", "and."]
    size = links = 0
    seconds = 0.0
    for _ in range(TEXTS):
        parts = draw.choices(words, k=WORDS)
        for _ in range(MENTIONS):
            cited = draw.choice(draw.choice(named).identifiers)
            lead = "arXiv:" if cited[4:5] == "." else ""
            parts.insert(draw.randrange(WORDS), lead + cited)
        text = " ".join(parts)
        size += len(text)
        start = time.process_time()
        links += len(references.find(text, "citing")[0])
        seconds += time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    speed = round(size / 1e6 / seconds, 2)
    return round(names, 1), speed, peak, references.names, references.left_out, links


if __name__ == "__main__":
    main()
