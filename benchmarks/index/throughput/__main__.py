"""Searches a second with 1, 4 and 16 clients at once, in process, over HTTP, and by other engines.

    pip install faiss-cpu pgserver "psycopg[binary]"
    python -m benchmarks.index.throughput FOLDER --vectors vectors.npy

FOLDER is one of ``benchmarks.index.size``, with the same ``--vectors``. Without an index there, the
command builds one of ``--rows`` documents of some 200 words. The other engines keep their indexes
in FOLDER/peers.

Each client sends its next query when the last one is answered. All queries are stored documents,
so embedding costs nothing. In process, clients are tasks of asyncio that do what ``POST /similar``
does between embedding and answering: they open the index and search. Over HTTP they send ids of
documents from another process. Clients of other engines are threads. The sides take turns, so
other load on the machine affects all of them. Each other engine searches with the least ``ef`` that
reaches the recall of this service in process. "1 %" is a filter that one row in a hundred passes.
All cosines are without a profile.

Qdrant has no place here: its form without a server compares with every vector.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.index.size.building import CACHE_BYTES, NAME, append, build, exact
from benchmarks.index.throughput.sides import (
    FILTERED,
    MODES,
    Engine,
    InProcess,
    OverHttp,
    Queries,
    Side,
    Taken,
    started,
)
from benchmarks.rig import documents
from benchmarks.rig.client import Client
from benchmarks.rig.peers import K, Vectors, installed, topics
from benchmarks.rig.report import Verdict
from benchmarks.rig.stored_index import opened
from service.index.indexes import Indexes

CLIENTS = (1, 4, 16)
# characters of each of the two pieces that make the text of a document
PIECE = 700


def main() -> None:
    """Build what is missing, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="default: a temporary one")
    parser.add_argument("--vectors", type=Path, help="default: random ones, kept in FOLDER")
    parser.add_argument("--skip", type=int, default=1000, help="first vectors, not in the index")
    parser.add_argument("--rows", type=int, default=100_000, help="if FOLDER has no index")
    parser.add_argument("--append", action="store_true", help="build in one commit, no windows")
    parser.add_argument("--texts", type=Path, default=documents.PEPS, help="of the built index")
    parser.add_argument("--queries", type=int, default=400, help="of each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory() as work:
        folder = given.folder or Path(work)
        figures = run(folder, given, console)
    report(figures, console)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def run(folder: Path, given: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Figures of all sides."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = _rows(folder, given)
    with asyncio.Runner() as runner, Client() as client:
        if not (folder / "indexes").exists():
            rows = rows[: given.rows]
            texts = _texts(documents.read(given.texts, 1000))
            make = append if given.append else build
            runner.run(make(folder, rows, console, texts))
        indexes = runner.run(opened(folder, NAME, CACHE_BYTES))
        rows = rows[: runner.run(_count(indexes))]
        chosen = np.random.default_rng(0).permutation(len(rows))[: given.queries]
        truth = exact(rows, np.array(rows[chosen]))
        queries = runner.run(Queries.read(indexes, chosen.tolist(), truth))
        if "words" not in queries.modes:
            console.print("all documents have the same words: only searches by cosine")
        model = indexes.served.models[0]
        with started(folder, (model.name, model.revision)) as service:
            own = [InProcess(mode, indexes, runner) for mode in queries.modes]
            sides: list[Side] = [*own, *(OverHttp(m, service, client) for m in queries.modes)]
            # reads the files
            for side in sides:
                side.send(queries, max(CLIENTS))
            for peer in installed(rows, folder / "peers", console):
                for side in own:
                    if side.recall is not None:
                        with console.status(f"finding ef: {peer.name}, {side.mode}"):
                            sides.append(Engine(side.mode, peer, queries, side.recall))
            figures: dict[str, Any] = {"rows": len(rows), "load": os.getloadavg()[0]}
            figures["sides"] = measured(sides, queries, given.turns)
    return figures


def _rows(folder: Path, given: argparse.Namespace) -> Vectors:
    path: Path = given.vectors or folder / "vectors.npy"
    if not path.exists():
        np.save(path, topics(given.skip + given.rows))
    found: Vectors = np.load(path, mmap_mode="r")
    return found[given.skip :]


def _texts(sources: Sequence[str]) -> Callable[[int], str]:
    def text(number: int) -> str:
        draw = np.random.default_rng(number)
        parts = []
        for source in (sources[i] for i in draw.integers(len(sources), size=2)):
            start = int(draw.integers(max(len(source) - PIECE, 1)))
            parts.append(source[start : start + PIECE])
        return " ".join(parts)

    return text


async def _count(indexes: Indexes) -> int:
    return int(await (await indexes.open(NAME)).count())


def measured(sides: list[Side], queries: Queries, turns: int) -> list[dict[str, Any]]:
    """Searches a second, milliseconds of each and recall, by side, mode and number of clients."""
    taken: dict[tuple[int, int], list[Taken]] = defaultdict(list)
    for _ in track(range(turns), "turns"):
        for clients in CLIENTS:
            for place, side in enumerate(sides):
                taken[place, clients].append(side.send(queries, clients))
    figures = []
    for (place, clients), results in taken.items():
        side = sides[place]
        seconds = np.concatenate([one for _, one in results])
        p50, p99 = (1000 * np.quantile(seconds, [0.5, 0.99])).tolist()
        figures.append(
            {
                "side": side.name,
                "mode": side.mode,
                "clients": clients,
                "qps": float(np.median([len(one) / whole for whole, one in results])),
                "p50_ms": p50,
                "p99_ms": p99,
                "recall": side.recall,
            }
        )
    modes = list(MODES)
    return sorted(figures, key=lambda one: (modes.index(one["mode"]), one["clients"]))


def report(figures: dict[str, Any], console: Console) -> None:
    """Print a table, and whether the aim holds."""
    table = Table(title=f"{figures['rows']:,} documents, load {figures['load']:.1f} at the start")
    for heading in ("mode", "clients", "", "QPS", "p50 ms", "p99 ms", f"recall@{K}"):
        table.add_column(heading, justify="left" if heading in ("mode", "") else "right")
    for one in figures["sides"]:
        recall = "" if one["recall"] is None else f"{one['recall']:.3f}"
        cells = (f"{one['qps']:,.0f}", f"{one['p50_ms']:.1f}", f"{one['p99_ms']:.1f}", recall)
        table.add_row(one["mode"], str(one["clients"]), one["side"], *cells)
    console.print(table)
    for mode in ("cosine", FILTERED):
        most = [f for f in figures["sides"] if (f["mode"], f["clients"]) == (mode, max(CLIENTS))]
        own = next(one for one in most if one["side"] == "in process")
        for peer in (one for one in most if one["side"].startswith("pgvector")):
            verdict = Verdict("QPS of pgvector", own["qps"] / peer["qps"], 0.5)
            reached = "" if peer["recall"] >= own["recall"] else ", which has a lower recall"
            console.print(
                f"{mode}, {max(CLIENTS)} clients: {verdict.figure:.2f} times the QPS of pgvector"
                f"{reached} ({verdict.bound:g}) {'held' if verdict.held else 'missed'}"
            )


if __name__ == "__main__":
    main()
