"""Does a profile find more if it also learns from the documents nearest by words?

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m studies.word_neighbours data/papers papers

A profile whitens differences between windows of one document. Here it also whitens differences
between each document and its nearest ones by the cosine of their words (ranking.bags). Both
covariances have the same trace before ``--shares`` weighs the second. Each citing document searches
for those that it cites by adapted cosine.

"seen" fits on all documents. "unseen" fits on one random half, and searches among the other half
from its citing documents; then the halves change places. MRR and recall at 10 are means over the
citing documents. The differences from the service's profile have a 95 % bootstrap interval, paired
by document.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import lancedb
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from docsplit.ranking.adaptation import MOST_WINDOWS, RIDGE
from docsplit.ranking.bags import bag_rows
from docsplit.ranking.terms import SAMPLE, count
from service.index.rows import records, terms
from service.index.rows.vectors import blobs, matrix
from training.evaluation.citations import difference_interval

CANDIDATES = 100

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Corpus:
    """An index in memory.

    Attributes:
        vectors: of documents.
        windows: of each document.
        words: the cosines of the words of all pairs; -1 for a document itself.
        cited: of each document.
    """

    vectors: Floats
    windows: list[NDArray[np.float32]]
    words: Floats
    cited: dict[int, set[int]]


def main() -> None:
    """Fit, search and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--neighbours", type=int, default=3)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.25, 0.5, 1.0])
    given = parser.parse_args()
    corpus = read(given.path, given.index)
    table = Table("share", *(f"{x}: {y}" for x in ("seen", "unseen") for y in ("MRR", "recall@10")))
    bases = [measured(corpus, 0.0, given, seen=seen) for seen in (True, False)]
    for share in (0.0, *given.shares):
        cells = []
        for base, seen in zip(bases, (True, False), strict=True):
            found = measured(corpus, share, given, seen=seen)
            for before, after in zip(base.T, found.T, strict=True):
                low, high = difference_interval(before, after)
                cells.append(f"{after.mean():.3f} ({low:+.3f} to {high:+.3f})")
        table.add_row(f"{share:g}", *cells)
    Console(width=140, highlight=False).print(table)


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser that takes an index and the share of the mean."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="--index-path of docsplit-index")
    parser.add_argument("index")
    parser.add_argument("--mean", type=float, default=1.0, help="share of the mean to subtract")
    return parser


def read(path: Path, name: str) -> Corpus:
    """The one generation of an index that ``docsplit-index`` left below ``path``."""
    folder = table_of(path, name)
    table = lancedb.connect(str(folder.parent)).open_table(folder.stem).to_arrow()
    rows = table.select(["id", "links", "window_ends", "digest", terms.COLUMN]).to_pylist()
    place = {row["id"]: number for number, row in enumerate(rows)}
    pairs = zip(blobs(table["windows"]), rows, strict=True)
    windows = [records.windows(blob, row["window_ends"]).vectors for blob, row in pairs]
    cited = {place[row["id"]]: {place[x] for x in row["links"] if x in place} for row in rows}
    bags = [terms.opened(row[terms.COLUMN], row["digest"]) or b"" for row in rows]
    weighed = bag_rows(bags).multiply(np.sqrt(count(bags[:SAMPLE]).weights)[None]).tocsr()
    lengths = np.sqrt(weighed.power(2).sum(axis=1)).clip(1e-9)
    words = (weighed @ weighed.T).toarray() / lengths[:, None] / lengths
    np.fill_diagonal(words, -1)
    return Corpus(matrix(table).astype(np.float64), windows, words, cited)


def table_of(path: Path, name: str) -> Path:
    """The folder of the one generation of an index."""
    [folder] = (path / "indexes").glob(f"{name}.*.lance")
    return folder


def measured(corpus: Corpus, share: float, given: argparse.Namespace, *, seen: bool) -> Floats:
    """Reciprocal rank and recall at 10 of each citing document."""
    every = np.arange(len(corpus.vectors))
    if seen:
        return search(corpus, every, fitted(corpus, every, share, given))
    half = np.random.default_rng(0).permutation(every) < len(every) // 2
    return np.concatenate(
        [search(corpus, every[~x], fitted(corpus, every[x], share, given)) for x in (half, ~half)]
    )


def fitted(corpus: Corpus, learnt: Places, share: float, given: argparse.Namespace) -> Floats:
    """The adapted vectors of all documents."""
    vectors = corpus.vectors[learnt]
    nearest = np.argsort(-corpus.words[np.ix_(learnt, learnt)], axis=1)[:, : given.neighbours]
    differences = (vectors[:, None] - vectors[nearest]).reshape(-1, vectors.shape[1])
    parts = [corpus.windows[place][:MOST_WINDOWS] for place in learnt]
    windows = np.concatenate([part - part.mean(axis=0) for part in parts])
    within, between = windows.T @ windows, differences.T @ differences
    scatter = (1 - share) * within / np.trace(within) + share * between / np.trace(between)
    values, directions = np.linalg.eigh(scatter)
    scales = (np.maximum(values, 0) / values.mean() + RIDGE) ** -0.5
    adapted: Floats = (corpus.vectors - given.mean * vectors.mean(axis=0)) @ (directions * scales)
    adapted /= np.linalg.norm(adapted, axis=1, keepdims=True)
    return adapted


def search(corpus: Corpus, among: Places, adapted: Floats) -> Floats:
    """Reciprocal rank and recall at 10 of the citing documents among some."""
    found = []
    chosen = set(among.tolist())
    for citing in among.tolist():
        cited = corpus.cited.get(citing, set()) & chosen - {citing}
        if not cited:
            continue
        others = among[among != citing]
        order = others[np.argsort(-(adapted[others] @ adapted[citing]))][:CANDIDATES]
        found.append(figures(order, cited))
    return np.array(found).reshape(-1, 2)


def figures(order: Places, cited: set[int]) -> tuple[float, float]:
    """Reciprocal rank of the first cited document, and recall at 10."""
    ranks = [rank for rank, other in enumerate(order.tolist(), start=1) if other in cited]
    return (1 / ranks[0] if ranks else 0.0, sum(rank <= 10 for rank in ranks) / len(cited))


if __name__ == "__main__":
    main()
