"""Does a document find those that it cites, by cosine, by words and by both?

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m benchmarks.index.citation_rankings --index-path data/papers --index papers

The command reads the index in this process, and fits a profile to it if it has none; ``--raw`` uses
the plain cosine. It searches by the id of each document that cites
others. MRR takes the first cited document among the best 100, 0 if there is none. Recall at 10 is
the share of the cited documents among the best 10. Both are means over the citing documents. The
differences have a 95 % bootstrap interval, paired by document. Identifiers in the texts, such as
"PEP 484", reveal the answer to a search by words: mask them before indexing.
"""

import argparse
import asyncio
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import bootstrap

from benchmarks.rig.stored_index import opened
from docsplit.ranking.adaptation import Profile
from service.index.documents import Index
from service.index.link_graph import citations
from service.index.query import search

MODES = {"cosine": search.cosine, "words": search.words, "hybrid": search.hybrid}
DEPTH = 100


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index-path", type=Path, required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--raw", action="store_true", help="use no profile")
    parser.add_argument("--queries", type=int, help="citing documents to look up; default all")
    given = parser.parse_args()
    asyncio.run(run(given.index_path, given.index, given.queries, raw=given.raw))


async def run(folder: Path, name: str, most: int | None, *, raw: bool) -> None:
    """Search in every mode, and report."""
    indexes = await opened(folder, name)
    index = await indexes.open(name)
    profile = None
    if not raw:
        fitted = await indexes.profiles.get(index) or await indexes.profiles.fit(index)
        profile = fitted.profile
    links = await citations(index)
    chosen = np.random.default_rng(0).permutation(sorted(links))[:most].tolist()
    found, seconds = {}, {}
    for mode in MODES:
        # the first search counts the index's words
        await ranked(index, chosen[0], mode, profile)
        started = time.monotonic()
        hits = [await ranked(index, one, mode, profile) for one in track(chosen, mode)]
        seconds[mode] = (time.monotonic() - started) / len(chosen)
        found[mode] = np.array(
            [figures(one, links[name]) for one, name in zip(hits, chosen, strict=True)]
        )
    report(found, seconds, f"{name}: {len(chosen)} citing documents")


async def ranked(index: Index, document: str, mode: str, profile: Profile | None) -> list[str]:
    """The hits for a stored document, best first."""
    query = replace(await search.stored(index, document), profile=profile)
    return [hit.id for hit in await MODES[mode](index, query, DEPTH, None)]


def figures(hits: list[str], cited: set[str]) -> tuple[float, float]:
    """Reciprocal rank of the first cited document, and recall at 10."""
    ranks = [rank for rank, hit in enumerate(hits, start=1) if hit in cited]
    return (1 / ranks[0] if ranks else 0.0, sum(rank <= 10 for rank in ranks) / len(cited))


def report(found: dict[str, NDArray[np.float64]], seconds: dict[str, float], title: str) -> None:
    """A row for each mode, and how much hybrid is above its parts."""
    console = Console(highlight=False)
    table = Table("", "MRR", "recall@10", "ms a search", title=title)
    for mode, values in found.items():
        means = [f"{value:.3f}" for value in values.mean(axis=0)]
        table.add_row(mode, *means, f"{1000 * seconds[mode]:.0f}")
    console.print(table)
    for part in ("cosine", "words"):
        for column, measure in enumerate(("MRR", "recall@10")):
            difference = (found["hybrid"] - found[part])[:, column]
            drawn = bootstrap((difference,), np.mean, method="percentile", rng=0)
            low, high = drawn.confidence_interval
            console.print(
                f"hybrid over {part}, {measure}: {difference.mean():+.3f} "
                f"({low:+.3f} to {high:+.3f})"
            )


if __name__ == "__main__":
    main()
