"""What the maintenance of an index costs: memory, bytes written, time, and searches meanwhile.

    python -m benchmarks.index.maintenance
    python -m benchmarks.index.maintenance --documents 60 --characters 15000000 --rounds 0

The documents are drawn words with random vectors. An index with them is copied for each way of
maintenance: by LanceDB in this process, as for small indexes, and by a process of its own. Each
round writes 64 commits of two documents, maintains the index, and sends searches meanwhile. The
first row is the maintenance after the load.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmarks.rig.markdown import table
from benchmarks.rig.processes import children, forget_peak, status, written
from service.index.documents import Index
from service.index.indexes import Indexes, Model, connect
from service.index.maintenance import COMMITS, optimize
from service.index.merging import process
from service.index.query import search
from service.index.query.reading import Query
from service.index.rows.record import Encoding, Record

DIMENSIONS = 384
WINDOW = 2000
VOCABULARY = 50_000
# characters of one commit of the load
COMMIT = 2_000_000
WAYS = {"by LanceDB, in the service": 1 << 50, "in a process of its own": 0}


class Documents:
    """Documents of words that are as frequent as in real texts (Zipf)."""

    def __init__(self, characters: int, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        lengths = self._random.integers(3, 9, VOCABULARY)
        self._words = np.array(["".join(self._random.choice(letters, n)) for n in lengths])
        self._frequencies = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
        self._characters = characters
        self._number = 0

    def draw(self, number: int) -> list[Record]:
        """The next documents."""
        return [self._one() for _ in range(number)]

    def query(self) -> Query:
        """A vector without a text."""
        return Query(self._vectors(1)[0], "")

    def _one(self) -> Record:
        self._number += 1
        drawn = self._random.random(self._characters // 6) * self._frequencies[-1]
        places = np.searchsorted(self._frequencies, drawn).clip(max=VOCABULARY - 1)
        text = " ".join(self._words[places])
        ends = [*range(WINDOW, len(text), WINDOW), len(text)]
        vectors = self._vectors(len(ends))
        encoding = Encoding(vectors[0], vectors, ends)
        return Record(f"d{self._number}", text, None, {}, [], encoding)

    def _vectors(self, number: int) -> np.ndarray:
        found = self._random.standard_normal((number, DIMENSIONS)).astype(np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)


@dataclass
class Watch:
    """The most memory, and the bytes written, of this process and of its children."""

    own: int = 0
    children: int = 0
    written: dict[int, int] = field(default_factory=dict)
    over: Event = field(default_factory=Event)

    def __enter__(self) -> Watch:
        self._before = written(os.getpid())
        forget_peak(os.getpid())
        self._thread = Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._thread.join()
        self.own = status(os.getpid(), "VmHWM") << 10
        self.written[0] = written(os.getpid()) - self._before

    def _run(self) -> None:
        while not self.over.wait(0.02):
            for child in children(os.getpid()):
                try:
                    peak = status(child, "VmHWM") << 10
                    self.written[child] = written(child)
                except (OSError, ValueError):
                    continue  # it has ended
                self.children = max(self.children, peak)


async def opened(folder: Path) -> Indexes:
    """The indexes in a folder."""
    databases = [await connect(f"{folder}/{part}") for part in ("indexes", "leases")]
    return Indexes(databases[0], databases[1], Model("drawn", "0" * 64, DIMENSIONS))


async def load(folder: Path, documents: Documents, number: int, characters: int) -> None:
    """Write an index, without maintenance."""
    indexes = await opened(folder)
    await indexes.create("x", {})
    index = await indexes.open("x")
    step = max(1, COMMIT // characters)
    for start in track(range(0, number, step), "load", console=Console(stderr=True)):
        await index.put(documents.draw(min(step, number - start)))


async def maintained(index: Index, documents: Documents) -> list[str]:
    """Maintain an index, and search it meanwhile."""
    times: list[float] = []

    async def searching() -> None:
        while True:
            began = time.perf_counter()
            await search.cosine(index, documents.query(), 10, None)
            times.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(0.01)

    task = asyncio.create_task(searching())
    began = time.perf_counter()
    with Watch() as watch:
        await optimize(index.table)
    seconds = time.perf_counter() - began
    task.cancel()
    percentiles = statistics.quantiles(times, n=100) if len(times) > 1 else [float("nan")] * 99
    return [
        f"{seconds:.1f}",
        f"{watch.own / 1e6:,.0f}",
        f"{watch.children / 1e6:,.0f}" if watch.children else "",
        f"{sum(watch.written.values()) / 1e6:,.0f}",
        f"{percentiles[49]:.0f}, {percentiles[98]:.0f}",
    ]


async def run(folder: Path, way: str, given: argparse.Namespace) -> list[list[str]]:
    """The rows of one way."""
    process.SMALL_BYTES = WAYS[way]
    documents = Documents(given.characters, seed=1)
    documents._number = given.documents
    index = await (await opened(folder)).open("x")
    rows = [[f"{way}: load", *await maintained(index, documents)]]
    for number in range(given.rounds):
        for _ in range(COMMITS):
            await index.put(documents.draw(2))
        rows.append([f"{way}: {number + 1}", *await maintained(index, documents)])
    return rows


def _load(folder: Path, given: argparse.Namespace) -> None:
    asyncio.run(load(folder, Documents(given.characters), given.documents, given.characters))


def _run(folder: Path, way: str, given: argparse.Namespace) -> list[list[str]]:
    return asyncio.run(run(folder, way, given))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure both ways, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=15_000)
    parser.add_argument("--characters", type=int, default=28_000, help="of a document")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        loaded = Path(scratch) / "loaded"
        # the memory that one step leaves behind would count for the next
        spawn = multiprocessing.get_context("spawn")
        rows: list[list[str]] = []
        with ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as pool:
            pool.submit(_load, loaded, given).result()
            for way in given.ways:
                copy = Path(scratch) / "copy"
                shutil.copytree(loaded, copy)
                rows += pool.submit(_run, copy, way, given).result()
                shutil.rmtree(copy)
    heading = ["round", "s", "service MB", "process MB", "written MB", "search p50, p99 ms"]
    print(table(heading, rows))


if __name__ == "__main__":
    main()
