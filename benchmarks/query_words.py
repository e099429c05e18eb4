"""Which words of a document should a full-text search for what it cites ask for?

    python -m benchmarks.query_words documents.jsonl citations.csv

BM25 (k1 1.2, b .75) in memory over lower-case words of two and more characters, English stop words
left out, not stemmed. Each citing document is a query; MRR takes the first document it cites among
the best 100, recall at 10 the share of the cited ones. ``sample`` takes document frequencies
from 512 documents, the first 20,000 characters of each, as the service does.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_matrix, diags
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from corpora.documents import read_documents
from ranking.terms import SAMPLE, SAMPLE_CHARACTERS, words

K1, B = 1.2, 0.75
DEPTH = 100

Weigh = Callable[[csr_matrix], csr_matrix]


def main() -> None:
    """Count, search, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents", type=Path)
    parser.add_argument("links", type=Path)
    parser.add_argument("--queries", type=int, default=500)
    given = parser.parse_args()
    sources = list(read_documents(given.documents, links=given.links))
    place = {source.id: number for number, source in enumerate(sources)}
    links = {place[s.id]: {place[c] for c in s.links if c in place and c != s.id} for s in sources}
    citing = np.array([number for number, cited in links.items() if cited])
    draw = np.random.default_rng(0)
    asked = draw.permutation(citing)[: given.queries]
    vocabulary: dict[str, int] = {}
    short = _counts([source.text[:SAMPLE_CHARACTERS] for source in sources], vocabulary)
    counts = _counts([source.text for source in sources], vocabulary)
    held = short[draw.permutation(len(sources))[:SAMPLE]]
    held.resize((held.shape[0], counts.shape[1]))
    table = Table(title=f"{len(sources)} documents, {len(asked)} queries")
    for heading in ("words", "MRR", "recall@10"):
        table.add_column(heading, justify="left" if heading == "words" else "right")
    index = _bm25(counts)
    for name, chosen in (
        ("all", counts[asked].sign()),
        ("most frequent 128", _best(counts[asked], 128)),
        ("most frequent 256", _best(counts[asked], 256)),
        *(
            (f"tf·idf, {n}", _best(counts[asked] @ _idf(counts), n))
            for n in (32, 64, 128, 256, 512)
        ),
        ("tf·idf, 128, sample", _best(counts[asked] @ _idf(held), 128)),
    ):
        scores = (chosen @ index.T).toarray()
        scores[np.arange(len(asked)), asked] = -np.inf
        table.add_row(name, *(f"{value:.3f}" for value in _figures(scores, asked, links)))
    Console().print(table)


def _counts(texts: list[str], vocabulary: dict[str, int]) -> csr_matrix:
    rows, columns, values = [], [], []
    for row, text in enumerate(texts):
        for word, count in Counter(words(text)).items():
            if word not in ENGLISH_STOP_WORDS:
                rows.append(row)
                columns.append(vocabulary.setdefault(word, len(vocabulary)))
                values.append(float(count))
    return csr_matrix((values, (rows, columns)), shape=(len(texts), len(vocabulary)))


def _idf(counts: csr_matrix) -> csr_matrix:
    documents = counts.shape[0]
    held = np.asarray(counts.sign().sum(axis=0)).ravel()
    return diags(np.log(1 + (documents - held + 0.5) / (held + 0.5))).tocsr()


def _bm25(counts: csr_matrix) -> csr_matrix:
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    long = np.repeat(lengths / lengths.mean(), np.diff(counts.indptr))
    weights = counts.copy()
    weights.data = counts.data * (K1 + 1) / (counts.data + K1 * (1 - B + B * long))
    return (weights @ _idf(counts)).tocsr()


def _best(weights: csr_matrix, most: int) -> csr_matrix:
    kept = weights.tocsr().copy()
    for first, last in zip(kept.indptr[:-1], kept.indptr[1:], strict=True):
        row = kept.data[first:last]
        order = np.argsort(-row, kind="stable")
        row[order[most:]] = 0.0
        row[order[:most]] = 1.0
    return kept


def _figures(
    scores: NDArray[np.float64], asked: NDArray[np.int64], links: dict[int, set[int]]
) -> tuple[float, float]:
    reciprocal, recall = [], []
    for row, number in zip(scores, asked.tolist(), strict=True):
        best = np.argsort(-row, kind="stable")[:DEPTH].tolist()
        ranks = [rank for rank, hit in enumerate(best, start=1) if hit in links[number]]
        reciprocal.append(1 / ranks[0] if ranks else 0.0)
        recall.append(sum(rank <= 10 for rank in ranks) / len(links[number]))
    return float(np.mean(reciprocal)), float(np.mean(recall))


if __name__ == "__main__":
    main()
