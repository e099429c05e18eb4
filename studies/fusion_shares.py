"""Which shares of vectors and words does a hybrid score want?

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m studies.fusion_shares data/papers papers
    python -m studies.fusion_shares data/papers papers --queries citance_queries.parquet \\
        --qrels citance_qrels.parquet --limit 2000

Without ``--queries`` each document that cites others is a query, and what it cites is its answer.
With them the queries are short texts, which the service embeds. The candidates
are those of the mode hybrid. Each share of the vectors ranks the same candidates. One half of the
queries, at random, chooses the share with the highest MRR; the other half measures the difference
to the share of ``ranking.fusion``, with its 95 % bootstrap interval, paired by query. Then the
halves change places.

MRR takes the first right document among the candidates, recall at 10 the share of the right
documents among the best 10.
"""

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.index.judged_queries import judgements
from benchmarks.rig import server
from benchmarks.rig.server import call
from benchmarks.rig.stored_index import opened
from docsplit.ranking import fusion
from docsplit.windowing.pooling import normalise
from service.index.query import search
from service.index.query.links import citations
from service.index.query.reading import Query, dense
from training.evaluation.citations import difference_interval

SHARES = np.round(np.arange(0, 1.01, 0.1), 1)
TEXTS = 32

Figures = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query and its answer.

    Attributes:
        query: of the search; an empty vector stands for a document's own.
        right: ids of the right documents.
    """

    query: Query
    right: frozenset[str]


def main() -> None:
    """Search, rank with every share, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="--index-path of docsplit-index")
    parser.add_argument("index")
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--qrels", type=Path)
    parser.add_argument("--limit", type=int, help="queries; default all")
    given = parser.parse_args()
    short = None
    if given.queries is not None:
        short = embedded(given.queries, judgements(given.qrels), given.limit)
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(given.path, f"{work}/index")
        figures = asyncio.run(measure(Path(work, "index"), given.index, given.limit, short))
    report(figures, fusion.DENSE if short is None else fusion.DENSE_SHORT)


def embedded(
    queries: Path, grades: Mapping[str, Mapping[str, float]], most: int | None
) -> list[Asked]:
    """Short queries with their vectors."""
    rows = [row for row in pq.read_table(queries).to_pylist() if row["id"] in grades]
    rows = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))[:most]]
    vectors: list[list[float]] = []
    with (
        server.started() as service,
        httpx.Client(base_url=service.url, timeout=600) as client,
    ):
        for first in track(range(0, len(rows), TEXTS), "vectors"):
            texts = [row["text"] for row in rows[first : first + TEXTS]]
            vectors += call(client, "POST", "/embed", {"inputs": texts})
    matrix = normalise(np.array(vectors, dtype=np.float32))
    return [
        Asked(Query(vector, row["text"], row.get("citing")), frozenset(grades[row["id"]]))
        for row, vector in zip(rows, matrix, strict=True)
    ]


async def measure(
    path: Path, name: str, most: int | None, short: list[Asked] | None
) -> dict[float, Figures]:
    """Reciprocal rank and recall at 10 of each query, by share of the vectors."""
    indexes = await opened(path, name)
    index = await indexes.open(name)
    fitted = await indexes.profiles.get(index) or await indexes.profiles.fit(index)
    asked = short
    if asked is None:
        links = await citations(index)
        chosen = np.random.default_rng(0).permutation(sorted(links))[:most].tolist()
        asked = [Asked(await search.stored(index, x), frozenset(links[x])) for x in chosen]
    found: dict[float, list[tuple[float, float]]] = {share: [] for share in SHARES.tolist()}
    for one in track(asked, "searches"):
        query = replace(one.query, profile=fitted.profile)
        brief = short is not None and search.short(query.text)
        hits = list(await search.candidates(index, query, search.CANDIDATES, None, brief=brief))
        near = dense(query, np.stack([hit.vector for hit in hits])).astype(np.float64)
        words = np.array([hit.words for hit in hits])
        lexical = fusion.standard(words if brief else np.sqrt(words))
        right = np.array([hit.id in one.right for hit in hits])
        for share, figures in found.items():
            scores = share * fusion.standard(near) + (1 - share) * lexical
            figures.append(ranked(right[np.argsort(-scores, kind="stable")], len(one.right)))
    return {share: np.array(figures) for share, figures in found.items()}


def ranked(right: NDArray[np.bool_], count: int) -> tuple[float, float]:
    """Reciprocal rank and recall at 10 of one query."""
    places = np.flatnonzero(right)
    return 1 / (1 + int(places[0])) if len(places) else 0.0, int(right[:10].sum()) / count


def report(figures: Mapping[float, Figures], present: float) -> None:
    """A row for each share, and what a choice on half of the queries gains on the other."""
    console = Console(highlight=False)
    count = len(figures[present])
    table = Table("share", "MRR", "recall@10", title=f"{count} queries")
    for share, values in figures.items():
        table.add_row(f"{share:.1f}", *(f"{mean:.3f}" for mean in values.mean(axis=0)))
    console.print(table)
    order = np.random.default_rng(1).permutation(count)
    halves: Sequence[NDArray[np.int64]] = (order[: count // 2], order[count // 2 :])
    for chosen_on, measured_on in (halves, halves[::-1]):
        best = max(figures, key=lambda share: figures[share][chosen_on, 0].mean())
        line = [f"chosen {best:.1f} instead of {present:.1f}:"]
        for column, measure_name in enumerate(("MRR", "recall@10")):
            before, after = (figures[x][measured_on, column] for x in (present, best))
            low, high = difference_interval(before, after)
            line.append(
                f"{measure_name} {(after - before).mean():+.4f} ({low:+.4f} to {high:+.4f})"
            )
        console.print(*line)


if __name__ == "__main__":
    main()
