"""Does the beginning of a document deserve more weight when cosines are adapted?

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m studies.first_windows data/papers papers

The first window has the title and the abstract, and its weight in a document's vector is that of
any other window. Here each document's vector becomes (1 - share) · vector + share · first window,
for each of ``--shares``. A profile adapts the result as the service does
(studies.word_neighbours). It ranks the 100 documents with the highest cosine of the plain vectors.
"hybrid" ranks them and the 200 documents with the nearest words, as ``ranking.fusion`` does.

Each citing document searches for those that it cites. A random third of them is the development
part: choose a share there, and look at the rest once. MRR and recall at 10 are means over the
citing documents. The differences from share 0 have a 95 % bootstrap interval, paired by document.
"""

import argparse
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ranking import fusion
from studies.word_neighbours import CANDIDATES, Corpus, Floats, fitted, parser_of, read
from training.evaluation.citations import difference_interval


def main() -> None:
    """Mix, fit, search and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.33, 0.5])
    parser.set_defaults(neighbours=1)
    given = parser.parse_args()
    corpus = read(given.path, given.index)
    citing = np.array([place for place, cited in corpus.cited.items() if cited - {place}])
    development = np.random.default_rng(20261127).random(len(citing)) < 1 / 3
    found = {share: measured(corpus, citing, share, given) for share in (0.0, *given.shares)}
    for title, part in (("development", development), ("the rest", ~development)):
        table = Table("share", "cosine: MRR", "recall@10", "hybrid: MRR", "recall@10", title=title)
        for share, figures in found.items():
            cells = []
            for before, after in zip(found[0.0][part].T, figures[part].T, strict=True):
                low, high = difference_interval(before, after)
                cells.append(f"{after.mean():.3f} ({low:+.3f} to {high:+.3f})")
            table.add_row(f"{share:g}", *cells)
        Console(width=140, highlight=False).print(table)


def measured(
    corpus: Corpus, citing: NDArray[np.int64], share: float, given: argparse.Namespace
) -> Floats:
    """Reciprocal rank and recall at 10 by cosine, then by hybrid, of each citing document."""
    mixed = (1 - share) * corpus.vectors + share * corpus.first
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    adapted = fitted(replace(corpus, vectors=mixed), np.arange(len(corpus.vectors)), 0.0, given)
    found = []
    for one in citing.tolist():
        plain = corpus.vectors @ corpus.vectors[one]
        plain[one] = -np.inf
        near = np.argsort(-plain)[:CANDIDATES]
        both = np.union1d(near, np.argsort(-corpus.words[one])[: fusion.DEEP])
        dense = adapted @ adapted[one]
        scores = fusion.hybrid(dense[both], corpus.words[one, both].clip(0))
        cited = corpus.cited[one] - {one}
        orders = near[np.argsort(-dense[near])], both[np.argsort(-scores)][:CANDIDATES]
        found.append([figure for order in orders for figure in figures(order, cited)])
    return np.array(found)


def figures(order: NDArray[np.int64], cited: set[int]) -> tuple[float, float]:
    """Reciprocal rank of the first cited document, and recall at 10."""
    ranks = [rank for rank, other in enumerate(order.tolist(), start=1) if other in cited]
    return (1 / ranks[0] if ranks else 0.0, sum(rank <= 10 for rank in ranks) / len(cited))


if __name__ == "__main__":
    main()
