"""How many times should the tokens of a document's first window count in its vector?

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m studies.first_windows data/papers papers

The first window has the title and the beginning. Its weight in a document's vector is its length
times each of ``--times``; lengths are in characters. A profile adapts the vectors as the service
does. "hybrid" ranks the 100 documents with the highest adapted cosine and the 200 with the nearest
words, as ``ranking.fusion`` does.

Each citing document searches for those that it cites. A random third of them is the development
part: choose a number there, and look at the rest once. MRR and recall at 10 are means over the
citing documents. The differences from 1 have a 95 % bootstrap interval, paired by document. As a
control the last window counts that often.
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
    """Weigh, fit, search and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=float, nargs="+", default=[1.5, 2, 3, 4, 6])
    parser.set_defaults(neighbours=1)
    given = parser.parse_args()
    corpus = read(given.path, given.index)
    citing = np.array([place for place, cited in corpus.cited.items() if cited - {place}])
    development = np.random.default_rng(20261127).random(len(citing)) < 1 / 3
    cases = [("first", times) for times in (1.0, *given.times)]
    cases += [("last", times) for times in given.times]
    found = {case: measured(corpus, citing, *case, given) for case in cases}
    for title, part in (("development", development), ("the rest", ~development)):
        header = ("window", "times", "cosine: MRR", "recall@10", "hybrid: MRR", "recall@10")
        table = Table(*header, title=title)
        for (which, times), figures in found.items():
            cells = []
            for before, after in zip(found["first", 1.0][part].T, figures[part].T, strict=True):
                low, high = difference_interval(before, after)
                cells.append(f"{after.mean():.3f} ({low:+.3f} to {high:+.3f})")
            table.add_row(which, f"{times:g}", *cells)
        Console(width=140, highlight=False).print(table)


def measured(
    corpus: Corpus,
    citing: NDArray[np.int64],
    which: str,
    times: float,
    given: argparse.Namespace,
) -> Floats:
    """Reciprocal rank and recall at 10 by cosine, then by hybrid, of each citing document."""
    vectors = np.stack(
        [
            weighted(windows, lengths, 0 if which == "first" else -1, times)
            for windows, lengths in zip(corpus.windows, corpus.lengths, strict=True)
        ]
    )
    weighed = replace(corpus, vectors=vectors)
    adapted = fitted(weighed, np.arange(len(vectors)), 0.0, given)
    found = []
    for one in citing.tolist():
        dense = adapted @ adapted[one]
        dense[one] = -np.inf
        near = np.argsort(-dense)[:CANDIDATES]
        both = np.union1d(near, np.argsort(-corpus.words[one])[: fusion.DEEP])
        scores = fusion.hybrid(dense[both], corpus.words[one, both].clip(0))
        cited = corpus.cited[one] - {one}
        orders = near, both[np.argsort(-scores)][:CANDIDATES]
        found.append([figure for order in orders for figure in figures(order, cited)])
    return np.array(found)


def weighted(
    windows: NDArray[np.float32], lengths: NDArray[np.int64], place: int, times: float
) -> Floats:
    """A document's unit vector if one of its windows counts several times."""
    weights = lengths.astype(np.float64)
    weights[place] *= times
    vector: Floats = weights @ windows
    return vector / np.linalg.norm(vector)


def figures(order: NDArray[np.int64], cited: set[int]) -> tuple[float, float]:
    """Reciprocal rank of the first cited document, and recall at 10."""
    ranks = [rank for rank, other in enumerate(order.tolist(), start=1) if other in cited]
    return (1 / ranks[0] if ranks else 0.0, sum(rank <= 10 for rank in ranks) / len(cited))


if __name__ == "__main__":
    main()
