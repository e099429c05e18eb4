"""Does a document find those that it cites? All modes of POST /similar on held-out documents.

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m benchmarks.learning.citation_search --index-path data/papers --index papers

The command works on a copy of the index. It splits the citing documents into folds. For each fold
it removes their links from the index and trains the citation head on the others. It then searches
for each citing document by its id in every mode. The search should find the documents that it
cites. Identifiers in the texts, such as "PEP 484", reveal the answer to a search by words: mask
them before indexing.

With ``--by-time`` a head learns from the links of earlier documents only, and the links of later
ones are not in the index: the first of five parts is never asked. The ids tell the time: the year
of an ACL id such as P05-1033, otherwise the number among those with the same beginning.

MRR takes the first cited document among the best 100, 0 if there is none. Recall at 10 is the share
of the cited documents among the best 10. Both are means over the citing documents, with the
standard deviation over the folds. The differences have a 95 % bootstrap interval, paired by
document.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import bootstrap

from benchmarks.rig import server
from benchmarks.rig.server import call

MODES = ("cosine", "words", "hybrid", "citation")
DEPTH = 100
PAGE = 500
GROUP = 20

Figures = dict[str, NDArray[np.float64]]


def main() -> None:
    """Hold out, train, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index-path", type=Path, required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--queries", type=int, help="citing documents to look up; default all")
    parser.add_argument("--by-time", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with server.on_copy(given.index_path) as client:
        found, folds = measure(client, given.index, given.folds, given.queries, given.by_time)
    content = report(found, folds, given.index)
    if given.json is not None:
        given.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def measure(
    client: httpx.Client, index: str, folds: int, most: int | None, by_time: bool = False
) -> tuple[dict[str, Figures], NDArray[np.int64]]:
    """Reciprocal ranks and recalls of each mode by citing document, and the fold of each."""
    links = citing(client, index)
    names = np.array(sorted(links))[np.random.default_rng(0).permutation(len(links))]
    asked = np.arange(len(names)) < (len(names) if most is None else most)
    fold = np.arange(len(names)) % folds
    if by_time:
        fold[np.argsort(times(names.tolist()), kind="stable")] = np.sort(fold)
    found = {m: {k: np.zeros(len(names)) for k in ("mrr", "recall_at_10")} for m in MODES}
    for number in range(int(by_time), folds):
        held = names[fold >= number if by_time else (fold == number) & asked].tolist()
        documents = [call(client, "GET", f"/indexes/{index}/documents/{name}") for name in held]
        upsert(client, index, [document | {"links": []} for document in documents])
        made = call(client, "POST", f"/indexes/{index}/citation")
        Console().print(f"fold {number + 1}: {made}", highlight=False)
        for place in track(np.flatnonzero((fold == number) & asked), f"fold {number + 1}"):
            name = names[place]
            for mode in MODES:
                body = {"index": index, "id": name, "mode": mode, "top_k": DEPTH}
                if mode == "citation":
                    body["direction"] = "cites"
                hits = [hit["id"] for hit in call(client, "POST", "/similar", body)]
                ranks = [rank for rank, hit in enumerate(hits, start=1) if hit in links[name]]
                figures = found[mode]
                figures["mrr"][place] = 1 / ranks[0] if ranks else 0.0
                figures["recall_at_10"][place] = sum(r <= 10 for r in ranks) / len(links[name])
        upsert(client, index, documents)
    asked &= fold >= by_time
    shown = {mode: {key: one[asked] for key, one in own.items()} for mode, own in found.items()}
    return shown, fold[asked] - by_time


def times(names: list[str]) -> list[float]:
    """When each document was written, as far as its id tells, from 0 to 1."""
    ids = [re.fullmatch(r"([A-Z](?=\d\d-\d)|.*?-?)(\d+)(?:-\d+)?", name) for name in names]
    numbers = [(one[1], int(one[2])) if one else ("", 0) for one in ids]
    # ACL ids have years of two digits
    numbers = [("", (n - 50) % 100) if len(head) == 1 else (head, n) for head, n in numbers]
    kinds: dict[str, list[int]] = {}
    for kind, number in numbers:
        kinds.setdefault(kind, []).append(number)
    return [float(np.mean(np.array(kinds[kind]) < number)) for kind, number in numbers]


def citing(client: httpx.Client, index: str) -> dict[str, set[str]]:
    """By citing document, the documents of the index that it cites."""
    names: list[str] = []
    after = ""
    while True:
        page = call(client, "GET", f"/indexes/{index}/documents?after={after}&limit={PAGE}")
        names += [document["id"] for document in page["documents"]]
        if page["next"] is None:
            break
        after = page["next"]
    there = set(names)
    found = {}
    for name in track(names, "links"):
        held = call(client, "GET", f"/indexes/{index}/documents/{name}")["links"]
        cited = (there & set(held)) - {name}
        if cited:
            found[name] = cited
    return found


def upsert(client: httpx.Client, index: str, documents: list[dict[str, Any]]) -> None:
    """Write documents. Their texts and therefore their vectors do not change."""
    for first in range(0, len(documents), GROUP):
        part = [dict(one) for one in documents[first : first + GROUP]]
        for one in part:
            one.pop("version", None)
        call(client, "POST", f"/indexes/{index}/documents", {"documents": part})


def report(
    found: dict[str, Figures], fold: NDArray[np.int64], index: str
) -> dict[str, dict[str, Any]]:
    """A row for each mode, and the important differences."""
    console = Console(highlight=False)
    table = Table(title=f"{index}: {len(fold)} citing documents, {fold.max() + 1} folds")
    for heading in ("", "MRR", "sd", "recall@10", "sd"):
        table.add_column(heading, justify="right" if heading else "left")
    content: dict[str, dict[str, Any]] = {}
    for mode, figures in found.items():
        cells = []
        content[mode] = {}
        for key, values in figures.items():
            parts = [values[fold == number].mean() for number in range(fold.max() + 1)]
            content[mode][key] = {"mean": values.mean(), "sd": float(np.std(parts))}
            cells += [f"{values.mean():.4f}", f"{np.std(parts):.4f}"]
        table.add_row(mode, *cells)
    console.print(table)
    for better, worse in (("citation", "hybrid"), ("hybrid", "cosine"), ("hybrid", "words")):
        for key in ("mrr", "recall_at_10"):
            difference = found[better][key] - found[worse][key]
            low, high = bootstrap(
                (difference,), np.mean, method="percentile", rng=0
            ).confidence_interval
            console.print(
                f"{better} over {worse}, {key}: {difference.mean():+.4f} "
                f"({low:+.4f} to {high:+.4f})"
            )
            content[better].setdefault("over", {})[f"{worse} {key}"] = {
                "difference": difference.mean(),
                "interval_95": [low, high],
            }
    return content


if __name__ == "__main__":
    main()
