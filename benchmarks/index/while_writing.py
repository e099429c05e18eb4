"""How long do searches take while other processes write the index or maintain it?

    python -m benchmarks.index.while_writing documents.jsonl --documents 100000

The documents are those of ``benchmarks.index.search_modes``, with one window each. A service
answers searches by cosine over HTTP, one at a time, by the ids of stored documents, so it embeds
nothing. Each turn has three parts of ``--seconds``: searches while nothing else runs; searches
while ``docsplit-index`` embeds texts of the file into the same index, from its first commit on; and
searches while ``docsplit-index optimize`` builds all its indexes again, until it ends or the time
is over. The texts must last for the second part. ``--keep`` names a folder for the index; a later
run uses it again.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
from rich.progress import track

from benchmarks.index.search_modes import NAME, build, settled
from benchmarks.rig import documents, server
from benchmarks.rig.report import table
from benchmarks.rig.server import call

PARTS = (
    "while nothing else runs",
    "while documents are embedded and written",
    "while indexes are built again",
)
# seconds of searches that do not count
WARM_UP = 5.0


def main() -> None:
    """Build, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--texts", type=int, default=2000, help="texts to read from the file")
    parser.add_argument("--seconds", type=float, default=45, help="of each part of a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder of the index; default: a temporary one")
    given = parser.parse_args()
    texts = documents.read(given.source, given.texts)
    run = time.time_ns()
    seconds: dict[str, list[float]] = {part: [] for part in PARTS}
    with tempfile.TemporaryDirectory() as work:
        folder = given.keep or Path(work, "index")
        if not (folder / "indexes").is_dir():
            asyncio.run(build(folder, texts, given.documents, 1))
        with (
            server.started(f"--index-path={folder}") as service,
            httpx.Client(base_url=service.url, timeout=600) as client,
        ):
            settled(client)
            searched(client, given.documents, WARM_UP)
            for turn in track(range(given.turns), "turns"):
                seconds[PARTS[0]] += searched(client, given.documents, given.seconds)
                file = Path(work, f"{turn}.jsonl")
                lines = ({"id": f"new {run} {turn} {n}", "text": t} for n, t in enumerate(texts))
                file.write_text("".join(json.dumps(line) + "\n" for line in lines))
                with running(folder, str(file), "--index", NAME, "--calibrate", "0") as loading:
                    until_written(client, f"new {run} {turn} 0")
                    seconds[PARTS[1]] += searched(client, given.documents, given.seconds)
                    if loading.poll() is not None:
                        raise SystemExit("the load ended early: give more --texts")
                with running(folder, "optimize", NAME, "--rebuild") as optimizing:
                    until = time.monotonic() + given.seconds
                    while optimizing.poll() is None and time.monotonic() < until:
                        seconds[PARTS[2]] += searched(client, given.documents, 0.2)
    rows = [
        [part, str(len(values)), *(f"{1000 * q:.1f}" for q in np.quantile(values, [0.5, 0.99]))]
        for part, values in seconds.items()
    ]
    print(table(["searches", "number", "p50 ms", "p99 ms"], rows))


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``docsplit-index`` on a store; end it afterwards."""
    command = [sys.executable, "-m", "service.bulk", *arguments, "--index-path", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def until_written(client: httpx.Client, name: str) -> None:
    """Wait until another process has written a document."""
    while client.get(f"/indexes/{NAME}/documents/{name}").status_code != 200:
        time.sleep(0.2)


def searched(client: httpx.Client, count: int, seconds: float) -> list[float]:
    """Seconds of each search, for some time."""
    found = []
    until = time.monotonic() + seconds
    while (started := time.monotonic()) < until:
        number = random.randrange(count)
        call(client, "POST", "/similar", {"index": NAME, "id": str(number), "mode": "cosine"})
        found.append(time.monotonic() - started)
    return found


if __name__ == "__main__":
    main()
