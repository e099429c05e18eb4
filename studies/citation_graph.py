"""Which numbers of the graph of links find citations?

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m studies.citation_graph data/papers papers

The study works on a copy of the index, which has some thousand documents at most.

The first table removes one link at a time, and looks for each of its two documents among those that
are coupled with the other one: MRR, 0 if it is not among them. Ties count as their mean rank.

The second table adds columns to the features of the citation head (heads.pair_features). A head
learns from the citing documents of four folds and ranks the 100 best hybrid hits of the fifth. The
links of the fifth are not in the graph, and a document's own links are not in the graph when its
columns are computed. With ``--known .5`` half of its links are in the graph, and it must find the
others. Intervals are of the difference from the features (95 %, paired bootstrap).

The third table says how many of the pairs that seem missing are right: a head learns from the
citing documents of four folds, and the known links of the fifth are left out of its candidates.

With ``--by-time`` the folds are parts in the order of time, a head learns from earlier parts only,
and no link of a later document counts, as in ``benchmarks.learning.citation_search --by-time``.
"""

import argparse
import asyncio
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.learning.citation_search import times
from benchmarks.rig.stored_index import opened
from docsplit.heads import citation
from docsplit.heads.citation import CANDIDATES, Candidates
from docsplit.heads.network import Vectors
from service.index.query.links import citations
from service.index.query.search import candidates, stored
from service.learning.citing import search_of
from studies.citation_features import FOLDS, applied

Floats = NDArray[np.float64]
Splits = list[tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]]
# the feature that counts other documents that cite the candidate
POPULARITY = 7
# of the first table
LINKS = 1500
NEAREST = 20
THRESHOLDS = (0.3, 0.5, 0.7, 0.8, 0.9)


def main() -> None:
    """Search, learn and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="--index-path of docsplit-index")
    parser.add_argument("index")
    parser.add_argument("--queries", type=int, help="citing documents; default all")
    parser.add_argument("--known", type=float, default=0.0, help="share of links in the graph")
    parser.add_argument("--by-time", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(given.path, f"{work}/index")
        links, asked = asyncio.run(read(Path(work, "index"), given.index, given.queries))
    Console().print(coupled(links))
    splits = split([one.name for one in asked], given.by_time)
    Console().print(learnt(links, asked, splits, given.known))
    Console().print(missing(links, asked, splits, given.known))


@dataclass(frozen=True, slots=True)
class Asked:
    """A citing document, the ids of its candidates, and its features."""

    name: str
    hits: list[str]
    search: Candidates


async def read(path: Path, name: str, most: int | None) -> tuple[dict[str, set[str]], list[Asked]]:
    """The links of an index, and the candidates of its citing documents."""
    index = await (await opened(path, name)).open(name)
    links = await citations(index)
    popularity = Counter(one for cited in links.values() for one in cited)
    names = sorted(links)
    names = [names[place] for place in np.random.default_rng(0).permutation(len(names))[:most]]
    found = []
    for one in track(names, "searches"):
        search = await search_of(index, one, links[one], popularity)
        if search is not None:
            hits = await candidates(index, await stored(index, one), CANDIDATES, None)
            found.append(Asked(one, [hit.id for hit in islice(hits, CANDIDATES)], search))
    return links, found


def _cosine(both: float, one: float, other: float) -> float:
    return both / math.sqrt(one * other) if both else 0.0


# of the numbers of shared references and citing documents, and of those of each of the two
SCORES: dict[str, Callable[[int, int, tuple[int, int], tuple[int, int]], float]] = {
    "cosine of references": lambda r, c, one, two: _cosine(r, one[0], two[0]),
    "cosine of citing documents": lambda r, c, one, two: _cosine(c, one[1], two[1]),
    "mean of both": lambda r, c, one, two: _cosine(r, one[0], two[0]) + _cosine(c, one[1], two[1]),
    "the higher one": lambda r, c, one, two: max(
        _cosine(r, one[0], two[0]), _cosine(c, one[1], two[1])
    ),
    "one cosine of both": lambda r, c, one, two: _cosine(r + c, sum(one), sum(two)),
    "shared documents": lambda r, c, one, two: r + c,
}


def coupled(links: Mapping[str, set[str]]) -> Table:
    """How well the graph finds a document of a removed link from the other one."""
    cites = {name: set(cited) for name, cited in links.items()}
    cited_by: dict[str, set[str]] = {}
    for citing, cited in links.items():
        cites |= {name: set() for name in cited if name not in cites}
        for name in cited:
            cited_by.setdefault(name, set()).add(citing)
    cited_by |= {name: set() for name in cites if name not in cited_by}
    pairs = sorted((citing, name) for citing, cited in links.items() for name in cited)
    found: dict[str, list[float]] = {name: [] for name in SCORES}
    for place in np.random.default_rng(0).permutation(len(pairs))[:LINKS]:
        citing, name = pairs[place]
        cites[citing].discard(name)
        cited_by[name].discard(citing)
        for query, wanted in ((citing, name), (name, citing)):
            references = Counter(one for r in cites[query] for one in cited_by[r])
            together = Counter(one for c in cited_by[query] for one in cites[c])
            own = len(cites[query]), len(cited_by[query])
            for key, score in SCORES.items():
                scores = {
                    one: score(
                        references[one], together[one], own, (len(cites[one]), len(cited_by[one]))
                    )
                    for one in {*references, *together} - {query}
                }
                found[key].append(_reciprocal(scores, wanted))
        cites[citing].add(name)
        cited_by[name].add(citing)
    table = Table("score", "MRR", title=f"{min(LINKS, len(pairs))} links")
    for key, ranks in found.items():
        table.add_row(key, f"{np.mean(ranks):.3f}")
    return table


def _reciprocal(scores: Mapping[str, float], wanted: str) -> float:
    own = scores.get(wanted, 0)
    if not own:
        return 0.0
    values = [*scores.values()]
    return 1 / (1 + sum(one > own for one in values) + (values.count(own) - 1) / 2)


def split(names: list[str], by_time: bool) -> Splits:
    """Of each fold: documents to learn from, those to ask, and those without links in the graph."""
    fold = np.arange(len(names)) % FOLDS
    if not by_time:
        return [(fold != held, fold == held, fold == held) for held in range(FOLDS)]
    fold[np.argsort(times(names), kind="stable")] = np.sort(fold)
    return [(fold < held, fold == held, fold >= held) for held in range(1, FOLDS)]


def learnt(
    links: Mapping[str, set[str]], asked: Sequence[Asked], splits: Splits, known: float
) -> Table:
    """MRR and recall at 10 of heads with further columns."""
    kept = drawn(links, asked, known)
    at = {name: i for i, name in enumerate(sorted({*links, *(h for a in asked for h in a.hits)}))}
    at |= {name: len(at) + i for i, name in enumerate(sorted(set().union(*links.values()) - {*at}))}
    figures: dict[str, list[tuple[float, float]]] = {}
    for before, now, unknown in track(splits, "folds"):
        graph = np.zeros((len(at), len(at)), np.float32)
        out = {asked[i].name for i in np.flatnonzero(unknown).tolist()}
        for citing, cited in links.items():
            for name in kept[citing] if citing in out else cited:
                graph[at[citing], at[name]] = 1
        inputs = [columns(graph, at, one, kept[one.name]) for one in asked]
        for key in inputs[0]:
            own = [own[key] for own in inputs]
            train = [own[i] for i in np.flatnonzero(before)]
            train = [one for one in train if one.linked.any() and not one.linked.all()]
            rest = np.flatnonzero(now).tolist()
            for i, scores in zip(
                rest, applied(train, [own[i] for i in rest], "features"), strict=True
            ):
                name = asked[i].name
                wanted = len(links[name]) - len(kept[name])
                figures.setdefault(key, []).append(measures(scores, own[i].linked, wanted))
    return shown(figures)


def drawn(
    links: Mapping[str, set[str]], asked: Sequence[Asked], known: float
) -> dict[str, set[str]]:
    """The links of each citing document that the graph has."""
    draw = np.random.default_rng(1)
    return {
        one.name: set(draw.permutation(own := sorted(links[one.name]))[: int(known * len(own))])
        for one in asked
    }


def missing(
    links: Mapping[str, set[str]], asked: Sequence[Asked], splits: Splits, known: float
) -> Table:
    """How many pairs above a probability are links that the head did not know."""
    kept = drawn(links, asked, known)
    chances, right, hidden = [], [], 0
    for before, now, unknown in track(splits, "folds"):
        out = {asked[i].name for i in np.flatnonzero(unknown & ~now).tolist()}
        counts = Counter(name for one, cited in links.items() if one not in out for name in cited)
        inputs = [popular(one, links[one.name], counts) for one in asked]
        train = [inputs[i] for i in np.flatnonzero(before)]
        train = [one for one in train if one.linked.any() and not one.linked.all()]
        network = citation.train(train, math.inf).network
        for i in np.flatnonzero(now).tolist():
            one = asked[i]
            left = np.array([name not in kept[one.name] for name in one.hits])
            chances.append(network.probabilities(inputs[i].features[left])[:, 1])
            right.append(one.search.linked[left])
            hidden += len(links[one.name]) - len(kept[one.name])
    probabilities, linked = np.concatenate(chances), np.concatenate(right)
    table = Table("threshold", "pairs", "right", "precision", "recall", title=f"{hidden} links")
    for threshold in THRESHOLDS:
        above = linked[probabilities >= threshold]
        found = int(above.sum())
        shares = (f"{found / max(1, count):.3f}" for count in (len(above), hidden))
        table.add_row(f"{threshold}", f"{len(above)}", f"{found}", *shares)
    return table


def popular(one: Asked, own: set[str], counts: Mapping[str, int]) -> Candidates:
    """The candidates with the number of other documents that cite each."""
    features = one.search.features.copy()
    others = [counts.get(name, 0) - (name in own) for name in one.hits]
    features[:, POPULARITY] = np.log1p(np.maximum(0, others))
    return replace(one.search, features=features)


def columns(
    graph: Vectors, at: Mapping[str, int], one: Asked, kept: set[str]
) -> dict[str, Candidates]:
    """The candidates whose links are not known, with further columns of the graph."""
    query, hits = at[one.name], np.array([at[name] for name in one.hits])
    before = graph[query].copy()
    graph[query] = 0
    graph[query, [at[name] for name in kept]] = 1
    cited, references = graph.sum(axis=0), graph.sum(axis=1)
    citing = np.flatnonzero(graph[:, query])
    together = graph[np.ix_(citing, hits)].sum(axis=0)
    shared = graph[hits] @ graph[query]
    votes = [graph[np.ix_(hits[:some], hits)].sum(axis=0) for some in (NEAREST, CANDIDATES)]
    pairs = {
        "co-citation": (together, len(citing) * cited[hits]),
        "coupling": (shared, references[query] * references[hits]),
    }
    base = one.search.features.copy()
    base[:, POPULARITY] = np.log1p(cited[hits] - graph[query, hits])
    graph[query] = before
    added = {
        key: [both / np.sqrt(np.maximum(1, product)), np.log1p(both)]
        for key, (both, product) in pairs.items()
    }
    added["citing candidates"] = [np.log1p(one) for one in votes]
    added["all three"] = [column for own in added.values() for column in own]
    left = np.array([name not in kept for name in one.hits])
    return {
        key: replace(
            one.search,
            linked=one.search.linked[left],
            features=np.column_stack([base, *more])[left].astype(np.float32),
        )
        for key, more in {"features": [], **added}.items()
    }


def measures(scores: Vectors, linked: NDArray[np.bool_], wanted: int) -> tuple[float, float]:
    """Reciprocal rank of the first link, and recall at 10."""
    order = linked[np.argsort(-scores, kind="stable")]
    places = np.flatnonzero(order)
    return (1 / (1 + places[0]) if len(places) else 0.0), order[:10].sum() / wanted


def shown(figures: Mapping[str, Sequence[tuple[float, float]]]) -> Table:
    """Means, and intervals of the differences from the features."""
    base: Floats = np.array(figures["features"])
    table = Table("columns", "MRR", "difference", "recall@10", "difference", title=str(len(base)))
    picks = np.random.default_rng(0).integers(0, len(base), (2000, len(base)))
    for key, own in figures.items():
        values: Floats = np.array(own)
        change = values - base
        low, high = np.percentile(change[picks].mean(axis=1), [2.5, 97.5], axis=0)
        cells = [
            cell
            for i in range(2)
            for cell in (
                f"{values[:, i].mean():.3f}",
                f"{change[:, i].mean():+.3f} ({low[i]:+.3f} to {high[i]:+.3f})",
            )
        ]
        table.add_row(key, *cells)
    return table


if __name__ == "__main__":
    main()
