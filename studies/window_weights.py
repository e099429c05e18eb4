"""How much should each window of a document count in its vector?

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m studies.window_weights data/papers papers

The weight of a window is its number of tokens, characters, letters, words between blanks or
different words, or the same for all. The first window, or as a control the last one, counts several
times. "plain" ranks by the cosine, "adapted" with a profile, as the service fits it. "hybrid" ranks
the 100 documents with the highest adapted cosine and the 200 with the nearest words, as
``docsplit.ranking.fusion`` does.

Each citing document searches for those that it cites. MRR and recall at 10 are means over the
citing documents. The differences from tokens have a 95 % bootstrap interval, paired by document.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import lancedb
import numpy as np
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.ranking import fusion, words
from studies.word_neighbours import (
    CANDIDATES,
    Corpus,
    Floats,
    figures,
    fitted,
    parser_of,
    read,
    table_of,
)
from training.evaluation.citations import difference_interval

# from the texts of a document's windows to their weights
Weigh = Callable[[list[str]], list[int]]


def main() -> None:
    """Weigh, fit, search and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=float, nargs="+", default=[2, 3, 4])
    parser.set_defaults(neighbours=1)
    given = parser.parse_args()
    corpus, texts = read(given.path, given.index), window_texts(given)
    citing = [place for place, cited in corpus.cited.items() if cited - {place}]
    counted = {name: [weigh(parts) for parts in texts] for name, weigh in units().items()}
    cases = [(name, 0, 1.0) for name in counted]
    cases += [("letters", place, times) for place in (0, -1) for times in given.times]
    header = [f"{mode}: {x}" for mode in ("plain", "adapted", "hybrid") for x in ("MRR", "R@10")]
    table = Table("weight", *header)
    base: Floats | None = None
    for name, place, times in cases:
        found = measured(corpus, citing, counted[name], place, times, given)
        base = found if base is None else base
        cells = []
        for before, after in zip(base.T, found.T, strict=True):
            low, high = difference_interval(before, after)
            cells.append(f"{after.mean():.3f} ({low:+.3f} to {high:+.3f})")
        which = "" if times == 1 else f", {'last' if place else 'first'} {times:g} times"
        table.add_row(f"{name}{which}", *cells)
    Console(width=190, highlight=False).print(table)


def window_texts(given: argparse.Namespace) -> list[list[str]]:
    """The texts of the windows of each document."""
    folder = table_of(given.path, given.index)
    table = lancedb.connect(str(folder.parent)).open_table(folder.stem).to_arrow()
    rows = table.select(["text", "window_ends"]).to_pylist()
    return [
        [row["text"][start:end] for start, end in pairwise([0, *row["window_ends"]])]
        for row in rows
    ]


def units() -> dict[str, Weigh]:
    """What a window may be weighed by."""
    tokenizer = Tokenizer.from_file(str(DEFAULT_BUNDLE / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def by_tokens(parts: list[str]) -> list[int]:
        encoded = tokenizer.encode_batch(parts, add_special_tokens=False)
        return [len(part.ids) for part in encoded]

    return {
        "tokens": by_tokens,
        "characters": lambda parts: list(map(len, parts)),
        "letters": lambda parts: [sum(map(str.isalpha, part)) for part in parts],
        "words between blanks": lambda parts: [len(part.split()) for part in parts],
        "different words": lambda parts: [len(set(words.words(part))) for part in parts],
        "the same": lambda parts: [1] * len(parts),
    }


def measured(
    corpus: Corpus,
    citing: list[int],
    counted: list[list[int]],
    place: int,
    times: float,
    given: argparse.Namespace,
) -> Floats:
    """Reciprocal rank and recall at 10, plain, adapted and hybrid, of each citing document."""
    vectors = []
    for windows, counts in zip(corpus.windows, counted, strict=True):
        weights = np.maximum(counts, 1).astype(np.float64)
        weights[place] *= times
        vector = weights @ windows
        vectors.append(vector / np.linalg.norm(vector))
    weighed = replace(corpus, vectors=np.stack(vectors))
    adapted = fitted(weighed, np.arange(len(vectors)), 0.0, given)
    found = []
    for one in citing:
        plain, dense = weighed.vectors @ weighed.vectors[one], adapted @ adapted[one]
        plain[one] = dense[one] = -np.inf
        near = np.argsort(-dense)[:CANDIDATES]
        both = np.union1d(near, np.argsort(-corpus.words[one])[: fusion.DEEP])
        both = both[both != one]
        scores = fusion.hybrid(dense[both], corpus.words[one, both].clip(0))
        orders = np.argsort(-plain)[:CANDIDATES], near, both[np.argsort(-scores)][:CANDIDATES]
        cited = corpus.cited[one] - {one}
        found.append([figure for order in orders for figure in figures(order, cited)])
    return np.array(found)


if __name__ == "__main__":
    main()
