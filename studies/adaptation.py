"""Does the adapted cosine find more citations, and how many candidates must it rank?

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m studies.adaptation data/papers papers

The study works on a copy of the index. It fits a profile as the service does in the background.
Every citing document then searches by its id, as in POST /similar, first with ``"adapt": false``
and then with the profile for several numbers of candidates. ``--share`` and ``--ridge`` replace the
constants of ``docsplit.ranking.adaptation``.

MRR takes the first cited document among the best 100. Recall at 10 is the share of the cited
documents among the best 10. Both are means over the citing documents. The differences from the raw
cosine have a 95 % bootstrap interval, paired by document.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.rig.stored_index import opened
from docsplit.ranking import adaptation
from docsplit.ranking.adaptation import Profile
from service.index.documents import Index
from service.index.query import search
from service.index.query.filters import Where
from service.index.query.links import citations
from service.index.query.reading import Hit, Query
from training.evaluation.citations import difference_interval

DEPTH = 100

Figures = NDArray[np.float64]
Search = Callable[[Index, Query, int, Where | None], Awaitable[list[Hit]]]


def main() -> None:
    """Fit, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="--index-path of docsplit-index")
    parser.add_argument("index")
    parser.add_argument("--mode", choices=["cosine", "hybrid"], default="cosine")
    parser.add_argument("--candidates", type=int, nargs="+", default=[50, 100, 200, 1000])
    parser.add_argument("--share", type=float, help="by default the fit chooses it")
    parser.add_argument("--ridge", type=float, default=adaptation.RIDGE)
    given = parser.parse_args()
    adaptation.RIDGE = given.ridge
    if given.share is not None:
        adaptation.SHARE = given.share
        adaptation.LEAST_CITING = sys.maxsize
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(given.path, f"{work}/index")
        asyncio.run(measure(Path(work, "index"), given))


async def measure(path: Path, given: argparse.Namespace) -> None:
    """Print a row for the raw cosine and one for each number of candidates."""
    console = Console(width=120, highlight=False)
    indexes = await opened(path, given.index)
    index = await indexes.open(given.index)
    started = time.perf_counter()
    fitted = await indexes.profiles.fit(index)
    console.print(f"fitted in {time.perf_counter() - started:.1f} s: {fitted.gain}")
    links = await citations(index)
    # exactly the given numbers of candidates
    search.OVERSAMPLE = 1
    run = {"cosine": search.cosine, "hybrid": search.hybrid}[given.mode]
    search.ADAPTED_CANDIDATES = DEPTH
    raw = await found(run, index, links, None)
    table = Table("candidates", "MRR", "95 %", "recall@10", "95 %", title=f"{len(links)} citing")
    table.add_row("raw", f"{raw[0].mean():.3f}", "", f"{raw[1].mean():.3f}", "")
    for candidates in given.candidates if fitted.profile is not None else ():
        search.ADAPTED_CANDIDATES = candidates
        cells = []
        for old, new in zip(raw, await found(run, index, links, fitted.profile), strict=True):
            low, high = difference_interval(old, new)
            cells += [f"{new.mean():.3f}", f"{low:+.3f} to {high:+.3f}"]
        table.add_row(str(candidates), *cells)
    console.print(table)


async def found(
    run: Search, index: Index, links: dict[str, set[str]], profile: Profile | None
) -> tuple[Figures, Figures]:
    """Reciprocal rank and recall at 10 of each citing document."""
    reciprocal, recall = [], []
    for name in sorted(links):
        query = replace(await search.stored(index, name), profile=profile)
        hits = await run(index, query, min(DEPTH, search.ADAPTED_CANDIDATES), None)
        ranks = [rank for rank, hit in enumerate(hits, start=1) if hit.id in links[name]]
        reciprocal.append(1 / ranks[0] if ranks else 0.0)
        recall.append(sum(rank <= 10 for rank in ranks) / len(links[name]))
    return np.array(reciprocal), np.array(recall)


if __name__ == "__main__":
    main()
