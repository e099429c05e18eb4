"""Do short queries find their documents, by documents and by passages, in each mode?

    docsplit-index corpus.parquet --index scifact --index-path data/scifact
    python -m benchmarks.index.judged_queries --index-path data/scifact --index scifact \\
        --queries queries.parquet --qrels qrels.parquet

``queries`` has the columns ``id``, ``text`` and perhaps ``citing``, a document that its query's
answer leaves out. ``qrels`` has ``query_id``, ``doc_id``, ``score`` and perhaps ``split``, of which
only ``test`` counts. The service runs on a copy of the index. The command asks for the 100 best
documents of ``POST /similar`` and of ``POST /passages``. nDCG and recall are those at 10. The
differences have a 95 % bootstrap interval, paired by query.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import bootstrap

from benchmarks.rig import server
from benchmarks.rig.server import call
from export.tasks import Ranked, rank

DEPTH = 100

SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "documents, raw cosine": ("/similar", {"mode": "cosine", "adapt": False}),
    "documents, cosine": ("/similar", {"mode": "cosine"}),
    "documents, words (BM25)": ("/similar", {"mode": "words"}),
    "documents, hybrid": ("/similar", {"mode": "hybrid"}),
    "passages, cosine": ("/passages", {"mode": "cosine", "passages": 1}),
    "passages, words": ("/passages", {"mode": "words", "passages": 1}),
    "passages, hybrid": ("/passages", {"mode": "hybrid", "passages": 1}),
}
COMPARED = (
    ("documents, hybrid", "documents, words (BM25)"),
    ("documents, hybrid", "documents, raw cosine"),
    ("passages, hybrid", "documents, words (BM25)"),
    ("passages, hybrid", "documents, raw cosine"),
    ("passages, hybrid", "documents, hybrid"),
)


def main() -> None:
    """Index, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index-path", type=Path, required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--qrels", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="queries to search for; default all")
    given = parser.parse_args()
    relevant = judgements(given.qrels)
    queries = [row for row in pq.read_table(given.queries).to_pylist() if row["id"] in relevant]
    chosen = np.random.default_rng(0).permutation(len(queries))[: given.limit]
    queries = [queries[place] for place in chosen]
    with server.on_copy(given.index_path) as client:
        found = {
            name: [hits(client, given.index, row, *SEARCHES[name]) for row in track(queries, name)]
            for name in SEARCHES
        }
    grades = [relevant[row["id"]] for row in queries]
    report({name: measured(scores, grades) for name, scores in found.items()})


def judgements(path: Path) -> dict[str, dict[str, float]]:
    """The grades above 0 of each query's documents."""
    grades: dict[str, dict[str, float]] = {}
    for row in pq.read_table(path).to_pylist():
        if row.get("split", "test") == "test" and float(row["score"]) > 0:
            grades.setdefault(row["query_id"], {})[str(row["doc_id"])] = float(row["score"])
    return grades


def hits(
    client: httpx.Client, index: str, query: dict[str, Any], route: str, options: dict[str, Any]
) -> dict[str, float]:
    """The scores of the documents found."""
    body = {"index": index, "text": query["text"], "top_k": DEPTH} | options
    found = call(client, "POST", route, body)
    return {hit["id"]: hit["score"] for hit in found if hit["id"] != query.get("citing")}


def measured(found: Sequence[Mapping[str, float]], grades: Sequence[Mapping[str, float]]) -> Ranked:
    """Measures of one search over all queries."""
    names = sorted({name for one in (*found, *grades) for name in one})
    places = {name: place for place, name in enumerate(names)}
    scores = np.full((len(found), len(names)), -np.inf)
    for row, one in zip(scores, found, strict=True):
        for name, score in one.items():
            row[places[name]] = score
    return rank(scores, [{places[name]: grade for name, grade in one.items()} for one in grades])


def report(found: Mapping[str, Ranked]) -> None:
    """A row for each search, and how much the hybrid ones are above others."""
    console = Console(highlight=False)
    count = len(next(iter(found.values())).ndcg)
    table = Table("", "nDCG@10", "MRR", "recall@10", title=f"{count} queries")
    for name, one in found.items():
        means = (one.ndcg.mean(), one.reciprocal_rank.mean(), one.recall.mean())
        table.add_row(name, *(f"{mean:.3f}" for mean in means))
    console.print(table)
    for better, worse in COMPARED:
        for measure in ("ndcg", "reciprocal_rank", "recall"):
            difference = getattr(found[better], measure) - getattr(found[worse], measure)
            drawn = bootstrap((difference,), np.mean, method="percentile", rng=0)
            low, high = drawn.confidence_interval
            console.print(
                f"{better} over {worse}, {measure}: {difference.mean():+.4f} "
                f"({low:+.4f} to {high:+.4f})"
            )


if __name__ == "__main__":
    main()
