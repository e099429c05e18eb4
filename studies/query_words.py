"""Which words of a document should a full-text search for its citations use?

Studied on 2026-11-21.

    pip install bm25s
    python -m studies.query_words documents.jsonl citations.csv

Each citing document is a query. The search is BM25 (k1 1.2, b .75) over lower-case words of two and
more characters, without English stop words and without stemming. MRR takes the first cited document
among the best 100; recall at 10 is the share of the cited documents among the best 10. ``sample``
takes document frequencies from the first 20,000 characters of 512 documents, as the service does.

The documents are JSON Lines with the fields ``id`` and ``text``, also compressed. The links are a
CSV file with the columns ``citing`` and ``cited``.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import bm25s
import numpy as np
import pyarrow.csv
import pyarrow.json
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer

K1, B = 1.2, 0.75
DEPTH = 100
SAMPLE, SAMPLE_CHARACTERS = 512, 20_000

Floats = NDArray[np.float64]


def main() -> None:
    """Count words, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents", type=Path)
    parser.add_argument("links", type=Path)
    parser.add_argument("--queries", type=int, default=500)
    given = parser.parse_args()
    documents = pyarrow.json.read_json(given.documents)
    texts = documents["text"].to_pylist()
    links = _links(given.links, documents["id"].to_pylist())
    draw = np.random.default_rng(0)
    asked = draw.permutation(sorted(links))[: given.queries].tolist()
    vectorizer = CountVectorizer(stop_words="english")
    counts = vectorizer.fit_transform(texts)
    some = [texts[i][:SAMPLE_CHARACTERS] for i in draw.permutation(len(texts))[:SAMPLE]]
    idf, sampled_idf = _idf(counts), _idf(vectorizer.transform(some))
    analyze = vectorizer.build_analyzer()
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index([analyze(text) for text in texts], show_progress=False)
    vocabulary = vectorizer.get_feature_names_out()
    table = Table(
        "words", "MRR", "recall@10", title=f"{len(texts)} documents, {len(asked)} queries"
    )
    for name, weights, most in (
        ("all", np.ones_like(idf), None),
        ("most frequent 128", np.ones_like(idf), 128),
        ("most frequent 256", np.ones_like(idf), 256),
        *((f"tf·idf, {most}", idf, most) for most in (32, 64, 128, 256, 512)),
        ("tf·idf, 128, sample", sampled_idf, 128),
    ):
        ranked = []
        for document, columns in zip(asked, _best(counts[asked], weights, most), strict=True):
            scores = index.get_scores(vocabulary[columns].tolist())
            scores[document] = -np.inf
            ranked.append(np.argsort(-scores, kind="stable")[:DEPTH].tolist())
        table.add_row(name, *(f"{value:.3f}" for value in _figures(ranked, asked, links)))
    Console().print(table)


def _links(path: Path, ids: Sequence[str]) -> dict[int, set[int]]:
    """The documents that each citing document cites, by their numbers."""
    number = {name: place for place, name in enumerate(ids)}
    found: dict[int, set[int]] = defaultdict(set)
    for row in pyarrow.csv.read_csv(path).to_pylist():
        citing, cited = number.get(row["citing"]), number.get(row["cited"])
        if citing is not None and cited is not None and citing != cited:
            found[citing].add(cited)
    return found


def _idf(counts: csr_matrix) -> Floats:
    documents = counts.shape[0]
    containing = np.asarray(counts.sign().sum(axis=0)).ravel()
    idf: Floats = np.log(1 + (documents - containing + 0.5) / (containing + 0.5))
    return idf


def _best(counts: csr_matrix, weights: Floats, most: int | None) -> Iterator[NDArray[np.int64]]:
    """Columns of the ``most`` words with the highest weighted frequency, row by row."""
    for row in counts:
        order = np.argsort(-row.data * weights[row.indices], kind="stable")
        yield row.indices[order[:most]]


def _figures(
    ranked: Sequence[Sequence[int]], asked: Sequence[int], links: dict[int, set[int]]
) -> tuple[float, float]:
    reciprocal, recall = [], []
    for hits, document in zip(ranked, asked, strict=True):
        ranks = [rank for rank, hit in enumerate(hits, start=1) if hit in links[document]]
        reciprocal.append(1 / ranks[0] if ranks else 0.0)
        recall.append(sum(rank <= 10 for rank in ranks) / len(links[document]))
    return float(np.mean(reciprocal)), float(np.mean(recall))


if __name__ == "__main__":
    main()
