"""Which words should the index over words leave out?

    python -m studies.words.stop_words corpus.parquet queries.parquet qrels.parquet

With ICU's segmentation Lance leaves out the stop words of all languages, among them the English
words *cat*, *dog* and *war*. Each list of stop words gets an index over words of its own, and all
answer the same short queries by BM25. The differences from Lance's lists have a 95 % bootstrap
interval, paired by query.

``queries`` has the columns ``id``, ``text`` and perhaps ``citing``, a document that its query's
answer leaves out. ``qrels`` has ``query_id``, ``doc_id``, ``score`` and perhaps ``split``, of which
only ``test`` counts.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow.parquet as pq
from lancedb.index import FTS
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from export.tasks.ranking import Ranked, rank
from service.index.rows.columns import STOP_WORDS
from training.evaluation.citations import difference_interval

LISTS: dict[str, dict[str, Any]] = {
    "those of all languages (Lance)": {},
    f"{len(STOP_WORDS.split())} English words": {"custom_stop_words": STOP_WORDS.split()},
    f"{len(ENGLISH_STOP_WORDS)} English words (scikit-learn)": {
        "custom_stop_words": sorted(ENGLISH_STOP_WORDS)
    },
    "none": {"remove_stop_words": False},
}
DEPTH = 101


def main() -> None:
    """Index, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("corpus", "queries", "qrels"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--limit", type=int, default=1500, help="queries, drawn at random")
    given = parser.parse_args()
    corpus = pq.read_table(given.corpus, columns=["id", "text"])
    places = {name: place for place, name in enumerate(corpus["id"].to_pylist())}
    relevant: dict[str, dict[int, float]] = {}
    for row in pq.read_table(given.qrels).to_pylist():
        if row.get("split", "test") == "test" and row["score"] > 0:
            relevant.setdefault(row["query_id"], {})[places[row["doc_id"]]] = row["score"]
    asked = [row for row in pq.read_table(given.queries).to_pylist() if row["id"] in relevant]
    draw = np.random.default_rng(0).permutation(len(asked))[: given.limit]
    asked = [asked[place] for place in draw.tolist()]
    grades = [relevant[row["id"]] for row in asked]
    table = Table("stop words", "nDCG@10", "MRR", "recall@10", "MB", title=f"{len(asked)} queries")
    former: Ranked | None = None
    for label, options in LISTS.items():
        with tempfile.TemporaryDirectory() as folder:
            documents = lancedb.connect(folder).create_table("documents", corpus)
            documents.create_index("text", config=FTS(base_tokenizer="icu/split", **options))
            found = rank(scores(documents, asked, places), grades)
            size = sum(one.stat().st_size for one in Path(folder).rglob("_indices/*/*"))
        former = former or found
        cells = (
            cell(getattr(former, name), getattr(found, name))
            for name in ("ndcg", "reciprocal_rank", "recall")
        )
        table.add_row(label, *cells, f"{size / 1e6:.1f}")
    Console(width=140, highlight=False).print(table)


def scores(
    documents: lancedb.table.Table, asked: Sequence[dict[str, Any]], places: dict[str, int]
) -> NDArray[np.float64]:
    """BM25 of the best documents of each query; others get minus infinity."""
    found = np.full((len(asked), len(places)), -np.inf)
    for number, row in enumerate(track(asked)):
        search = documents.search(row["text"], query_type="fts", fts_columns="text")
        for hit in search.select(["id", "_score"]).limit(DEPTH).to_list():
            if hit["id"] != row.get("citing"):
                found[number, places[hit["id"]]] = hit["_score"]
    return found


def cell(before: NDArray[np.float64], after: NDArray[np.float64]) -> str:
    """The mean, and the interval of its difference from the first list."""
    low, high = difference_interval(before, after)
    return f"{after.mean():.3f} ({low:+.3f} to {high:+.3f})"


if __name__ == "__main__":
    main()
