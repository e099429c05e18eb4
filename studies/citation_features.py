"""Do a few features of a pair predict citations as well as a network on both vectors?

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m studies.citation_features data/papers papers
    python -m studies.citation_features data/papers papers --transfer data/specs specs

The study works on copies of the indexes. The candidates of each citing document are the 100 best
hits of a hybrid search with the raw cosine. Each head learns from the citing documents of four
folds and ranks the candidates of the fifth.

MRR takes the first cited document among the candidates, 0 if there is none. Recall at 10 is the
share of the cited documents among the best 10. Both are means over the citing documents.

With ``--transfer`` it adds heads that learnt from all citing documents of another index.
"""

import argparse
import asyncio
import math
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.rig.stored_index import opened
from docsplit.heads import citation
from docsplit.heads.citation import Candidates, Inputs
from docsplit.heads.network import Vectors
from docsplit.heads.pair_features import FEATURES
from service.index.query.links import citations
from service.learning.citing import search_of

FOLDS = 5


def main() -> None:
    """Search, learn and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="--index-path of docsplit-index")
    parser.add_argument("index")
    parser.add_argument("--queries", type=int, help="citing documents; default all")
    parser.add_argument("--transfer", nargs=2, metavar=("PATH", "INDEX"))
    given = parser.parse_args()
    searches, cited = copied(given.path, given.index, given.queries)
    table = Table("order", "MRR", "recall@10", title=f"{len(searches)} citing documents")
    short = without_fields(searches)
    rows = {
        "hybrid": [one.features[:, 0] for one in searches],
        "network on vectors and signals": learnt(searches, "vectors"),
        "features without fields": learnt(short, "features"),
        "features": learnt(searches, "features"),
    }
    if given.transfer:
        path, index = given.transfer
        known = without_fields(copied(Path(path), index, given.queries)[0])
        known = [one for one in known if one.linked.any() and not one.linked.all()]
        rows[f"network, learnt from {index}"] = applied(known, short, "vectors")
        rows[f"features without fields, learnt from {index}"] = applied(known, short, "features")
    for name, scores in rows.items():
        mrr, recall = figures(scores, searches, cited)
        table.add_row(name, f"{mrr:.3f}", f"{recall:.3f}")
    Console().print(table)


def copied(path: Path, name: str, most: int | None) -> tuple[list[Candidates], list[int]]:
    """The result of ``read`` from a copy of an index."""
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(path, f"{work}/index")
        return asyncio.run(read(Path(work, "index"), name, most))


def without_fields(searches: list[Candidates]) -> list[Candidates]:
    """The searches without the features of fields."""
    return [replace(one, features=one.features[:, :FEATURES]) for one in searches]


async def read(path: Path, name: str, most: int | None) -> tuple[list[Candidates], list[int]]:
    """The candidates of the citing documents, and how many documents each cites."""
    index = await (await opened(path, name)).open(name)
    links = await citations(index)
    popularity = Counter(one for cited in links.values() for one in cited)
    names = sorted(links)
    names = [names[place] for place in np.random.default_rng(0).permutation(len(names))[:most]]
    found = [
        (one, len(links[name]))
        for name in track(names, "searches")
        if (one := await search_of(index, name, links[name], popularity)) is not None
    ]
    return [one for one, _ in found], [count for _, count in found]


def learnt(searches: list[Candidates], inputs: Inputs) -> list[Vectors]:
    """The scores of each document's candidates by a head that did not learn from the document."""
    fold = np.arange(len(searches)) % FOLDS
    scores: list[Vectors] = [np.zeros(0, np.float32)] * len(searches)
    for held in track(range(FOLDS), inputs):
        known = [searches[i] for i in np.flatnonzero(fold != held)]
        known = [one for one in known if one.linked.any() and not one.linked.all()]
        asked = np.flatnonzero(fold == held)
        found = applied(known, [searches[place] for place in asked], inputs)
        for place, own in zip(asked, found, strict=True):
            scores[place] = own
    return scores


def applied(known: list[Candidates], searches: list[Candidates], inputs: Inputs) -> list[Vectors]:
    """The scores of each document's candidates by a head that learnt from other documents."""
    network = citation.fit(known, inputs, math.inf)
    logits = [network.logits(citation.inputs_of(one, inputs)) for one in searches]
    return [own[:, 1] - own[:, 0] for own in logits]


def figures(
    scores: list[Vectors], searches: list[Candidates], cited: list[int]
) -> tuple[float, float]:
    """MRR and recall at 10."""
    reciprocal, recall = [], []
    for own, one, count in zip(scores, searches, cited, strict=True):
        linked: NDArray[np.bool_] = one.linked[np.argsort(-own, kind="stable")]
        places = np.flatnonzero(linked)
        reciprocal.append(1 / (1 + places[0]) if len(places) else 0.0)
        recall.append(linked[:10].sum() / count)
    return float(np.mean(reciprocal)), float(np.mean(recall))


if __name__ == "__main__":
    main()
