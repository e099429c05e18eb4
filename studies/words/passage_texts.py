"""Which candidates' texts should a search by passages read?

    docsplit-index documents.jsonl --index papers --index-path data/papers
    python -m studies.words.passage_texts data/papers papers --queries citance_queries.parquet \\
        --qrels citance_qrels.parquet --limit 500

Four searches find the candidates of a short text: by windows, by BM25, and by sets of two and of
three of its rarest words. The service reads the texts of ``READ`` of them. Here all are read and
scored once. Each choice then ranks those that it would have read. The interval is that of the
paired difference from the choice by stored words: the share of the query's words that a document
contains, by idf, and its cosine.

MRR takes the first right document among the best ten, recall the share of the right ones there.
"""

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.index.judged_queries import judgements
from benchmarks.rig.stored_index import opened
from docsplit.ranking import passages as ranking
from docsplit.ranking.bags import Bag, title_in
from docsplit.ranking.fusion import fuse
from service.index.documents import Index
from service.index.query.bags import stored
from service.index.query.passage_candidates import (
    READ,
    by_sets,
    by_window,
    by_words,
    sized,
)
from service.index.query.passage_scores import VECTOR_SHARE, Asked, Mode, scored
from service.index.query.passages import CANDIDATES, IN_SETS, SOUGHT, WORDED
from service.index.rows.checksums import Part
from studies.fusion_shares import Asked as Judged
from studies.fusion_shares import embedded
from training.evaluation.citations import difference_interval

BEFORE = "by stored words"
MODES: tuple[Mode, ...] = ("words", "hybrid")
Figures = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Found:
    """The candidates of one query, by their rows.

    Attributes:
        lists: of the searches by windows, BM25, two and three words; the best first.
        names: ids.
        contained: share of the query's words in each document.
        near: cosines of the nearest windows of the documents that the search by windows found.
        scores: of the best passage, by mode.
        right: ids of the right documents.
    """

    lists: tuple[list[int], list[int], list[int], list[int]]
    names: dict[int, str]
    contained: dict[int, float]
    near: dict[int, float]
    scores: dict[Mode, dict[int, float]]
    right: frozenset[str]

    def searches(self, mode: Mode) -> list[list[int]]:
        """The lists of a mode: words uses no windows."""
        return list(self.lists if mode == "hybrid" else self.lists[1:])


def main() -> None:
    """Search, choose in every way, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="--index-path of docsplit-index")
    parser.add_argument("index")
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--qrels", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="queries; default all")
    given = parser.parse_args()
    asked = embedded(given.queries, judgements(given.qrels), given.limit)
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(given.path, f"{work}/index")
        found = asyncio.run(searched(Path(work, "index"), given.index, asked))
    report(found)


async def searched(path: Path, name: str, asked: Sequence[Judged]) -> list[Found]:
    """All candidates of each query, with the scores of all."""
    index = await (await opened(path, name)).open(name)
    return [await candidates(index, one) for one in track(asked, "searches")]


async def candidates(index: Index, judged: Judged) -> Found:
    """The candidates of one query."""
    query, frequencies = judged.query, await index.vocabulary.frequencies(index)
    top = frequencies.top_terms(query.text)
    terms = ranking.terms(query.text, frequencies)
    words = list(terms.weights)
    lists = (
        await by_window(index, query, CANDIDATES, None),
        await by_words(index, " ".join(words[:SOUGHT]) or top, WORDED, None),
        await by_sets(index, words, 2, IN_SETS, None),
        await by_sets(index, words, 3, IN_SETS, None),
    )
    held = await sized(index, query, list(fuse(*lists)))
    rows = {one.id: one.row for one in held}
    bags: dict[str, Bag] = await stored(index, list(rows.values()))
    shares = title_in(" ".join(words), [bags.get(name, b"") for name in rows], frequencies.idf)
    near: dict[int, float] = {}
    scores: dict[Mode, dict[int, float]] = {mode: {} for mode in MODES}
    async for read in index.contents(list(rows), Part.TEXT, Part.WINDOWS):
        for mode, made in scores.items():
            found = scored(read, Asked(query, mode, terms, 10, "text"))
            made |= {rows[name]: one.best for name, one in found.items()}
        near |= {rows[name]: float(one.cosines.max()) for name, one in found.items()}
    return Found(
        lists,
        {one.row: one.id for one in held},
        dict(zip(rows.values(), np.nan_to_num(shares, nan=1.0).tolist(), strict=True)),
        {row: near[row] for row in lists[0] if row in near},
        scores,
        judged.right,
    )


def by_stored_words(found: Found, mode: Mode) -> list[int]:
    """The documents that contain most of the query's words, and are near in the mode hybrid."""
    rows = [row for row in fuse(*found.searches(mode)) if row in found.names]
    lowest, share = min(found.near.values(), default=1.0), float(VECTOR_SHARE)
    near = {row: found.near.get(row, lowest) if mode == "hybrid" else 0.0 for row in rows}
    value = {row: share * near[row] + (1 - share) * found.contained[row] for row in rows}
    return sorted(rows, key=lambda row: -value[row])


def in_turn(found: Found, mode: Mode) -> list[int]:
    """The first of each list, then the second of each."""
    turns = chain.from_iterable(zip_longest(*found.searches(mode)))
    return list(dict.fromkeys(row for row in turns if row is not None))


CHOICES: dict[str, Callable[[Found, Mode], list[int]]] = {
    BEFORE: by_stored_words,
    "by ranks": lambda found, mode: list(fuse(*found.searches(mode))),
    "the first of each list in turn": in_turn,
    "by ranks, sets of three twice (served)": lambda found, mode: list(
        fuse(*found.searches(mode), found.lists[3])
    ),
    "the same, without sets of two": lambda found, mode: list(
        fuse(*found.searches(mode)[:-2], found.lists[3], found.lists[3])
    ),
}


def figures(found: Found, mode: Mode, rows: Sequence[int]) -> tuple[float, float]:
    """Reciprocal rank and recall at 10 if a search reads the texts of some rows."""
    scores = {found.names[row]: found.scores[mode].get(row, -1.0) for row in rows}
    best = sorted(scores, key=lambda name: (-scores[name], name))[:10]
    ranks = [rank for rank, name in enumerate(best, start=1) if name in found.right]
    return (1 / ranks[0] if ranks else 0.0, len(ranks) / len(found.right))


def report(found: Sequence[Found]) -> None:
    """A row for each choice in each mode."""
    table = Table("mode", "texts", "MRR", "", "recall@10", "", title=f"{len(found)} queries")
    for mode in MODES:
        before = measured(found, mode, by_stored_words)
        every = np.array([figures(one, mode, list(one.names)) for one in found])
        table.add_row(mode, "all", *cells(before, every))
        for name, choose in CHOICES.items():
            table.add_row(mode, name, *cells(before, measured(found, mode, choose)))
    Console(highlight=False, width=120).print(table)


def measured(
    found: Sequence[Found], mode: Mode, choose: Callable[[Found, Mode], list[int]]
) -> Figures:
    """The figures of each query."""
    made = []
    for one in found:
        rows = [row for row in choose(one, mode) if row in one.names]
        made.append(figures(one, mode, rows[:READ]))
    return np.array(made)


def cells(before: Figures, after: Figures) -> list[str]:
    """Each mean, with the interval of its difference."""
    shown = []
    for column in range(2):
        low, high = difference_interval(before[:, column], after[:, column])
        shown += [f"{after[:, column].mean():.3f}", f"{low:+.3f} to {high:+.3f}"]
    return shown


if __name__ == "__main__":
    main()
