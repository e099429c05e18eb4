"""How many words, and how many documents, must the search for candidates take?

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m studies.word_candidates data/papers papers

A long text is compared with whole documents by the cosine of their words. Only the best documents
by BM25 of the text's top terms are compared. The study compares each citing document with every
document, and counts how many of the 20 nearest the candidates contain. MRR and recall at 10 are
those of the cited documents, by the cosine among the candidates; means over the citing documents.
"""

import argparse
import asyncio
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.rig.stored_index import opened
from docsplit.ranking.bags import bag, cosines
from service.index.documents import LIVE
from service.index.query.links import citations

WORDS = (32, 48, 128)
DOCUMENTS = (200, 300, 400)
NEAREST = 20
DEPTH = 100


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="--index-path of docsplit-index")
    parser.add_argument("index")
    parser.add_argument("--queries", type=int, help="citing documents; default all")
    given = parser.parse_args()
    figures = asyncio.run(measure(given.path, given.index, given.queries))
    table = Table("words", "documents", f"of the {NEAREST} nearest", "MRR", "recall@10")
    for (words, documents), values in figures.items():
        means = (f"{mean:.3f}" for mean in np.mean(values, axis=0))
        table.add_row(str(words), str(documents), *means)
    Console().print(table)


async def measure(
    path: Path, name: str, most: int | None
) -> dict[tuple[int, int], list[tuple[float, float, float]]]:
    """Contained neighbours, reciprocal rank and recall of each citing document."""
    index = await (await opened(path, name)).open(name)
    read = await index.table.query().where(LIVE).select(["id", "text"]).to_arrow()
    names, texts = (read[column].to_pylist() for column in ("id", "text"))
    places = {one: place for place, one in enumerate(names)}
    bags = [bag(text) for text in track(texts, "words")]
    frequencies = await index.vocabulary.frequencies(index)
    links = await citations(index)
    chosen = np.random.default_rng(0).permutation(sorted(links))[:most].tolist()
    found: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    for citing in track(chosen, "searches"):
        own = places[citing]
        scores = cosines(bags[own], bags, frequencies.weights)
        scores[own] = -1
        order = np.argsort(-scores, kind="stable")
        nearest = set(order[:NEAREST].tolist())
        top = frequencies.top_terms(texts[own]).split()
        for words in WORDS:
            search = index.table.query().nearest_to_text(" ".join(top[:words]), columns=["words"])
            hits = await search.select(["id", "_score"]).limit(max(DOCUMENTS) + 1).to_arrow()
            candidates = [places[hit] for hit in hits["id"].to_pylist() if hit != citing]
            for documents in DOCUMENTS:
                kept = set(candidates[:documents])
                ranked = [names[place] for place in order if place in kept][:DEPTH]
                ranks = [rank for rank, hit in enumerate(ranked, start=1) if hit in links[citing]]
                recall = sum(rank <= 10 for rank in ranks) / len(links[citing])
                values = (len(kept & nearest) / NEAREST, 1 / ranks[0] if ranks else 0.0, recall)
                found.setdefault((words, documents), []).append(values)
    return found


if __name__ == "__main__":
    main()
