"""Memory of a process while an index is written to, maintained and searched again and again.

    python -m benchmarks.reliability.cache_memory

Each round writes a document, maintains the index and searches it by words and vectors, as a service
does for an index that gets a document now and then. It runs in a process of its own for each way:
with LanceDB's caches replaced as the service does it, and never replaced.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor

from rich.console import Console
from rich.progress import track

from benchmarks.index.maintenance import DIMENSIONS, Documents
from benchmarks.index.size.building import CACHE_BYTES
from benchmarks.rig.markdown import table
from benchmarks.rig.processes import status
from service.index.indexes import Indexes, Model, connect
from service.index.maintenance import maintain
from service.index.query import search
from service.index.storage import database

WAYS = {"replaced": database.MOST_FORMER, "never replaced": 10**9}


async def run(folder: str, most: int, rounds: int, every: int) -> list[list[str]]:
    """Rows of rounds, MB of anonymous memory, and MB that LanceDB counts in its caches."""
    database.MOST_FORMER = most
    database.MOST_WORD_INDEXES = 10**9
    # a service maintains an index less often than it looks at it
    database.LOOK_SECONDS = 0
    caches = database.Caches(CACHE_BYTES)
    databases = [await connect(f"{folder}/{part}", caches=caches) for part in ("a", "b")]
    indexes = Indexes(databases[0], databases[1], Model("drawn", "0" * 64, DIMENSIONS))
    await indexes.create("x", {})
    documents = Documents(300, seed=1)
    [document] = documents.draw(1)
    rows = []
    for number in track(range(1, rounds + 1), "rounds", console=Console(stderr=True)):
        index = await indexes.writable("x")
        await index.put([document])
        await maintain(indexes, "x", index)
        await search.hybrid(await indexes.open("x", still=True), documents.query(), 10, None)
        if number % every == 0:
            memory = status(os.getpid(), "RssAnon") * 1024 / 1e6
            counted = caches.session.size_bytes / 1e6
            rows.append([f"{number:,}", f"{memory:.0f}", f"{counted:.0f}"])
    return rows


def _run(most: int, rounds: int, every: int) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(folder, most, rounds, every))


def main() -> None:
    """Measure both ways, one after the other, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--every", type=int, default=250, help="rounds between two rows")
    given = parser.parse_args()
    rows = []
    for way, most in WAYS.items():
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found = pool.submit(_run, most, given.rounds, given.every).result()
        rows += [[way, *row] for row in found]
    print(table(["caches", "rounds", "memory, MB", "counted, MB"], rows))


if __name__ == "__main__":
    main()
