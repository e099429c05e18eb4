"""Does a linear map of the vectors, fitted without labels, find more citations?

Studied on 2026-11-22.

    docsplit-index documents.jsonl --index papers --links citations.csv --index-path data/papers
    python -m studies.whitening data/papers papers [--fit data/specs specs]

The map is within-class covariance normalisation (Hatch et al. 2006, "Within-class covariance
normalization for SVM-based speaker recognition"). A document is the class, and its windows are the
samples. Vectors are centred and multiplied by (S / mean eigenvalue + ridge)^-power, where S is the
covariance of windows about their document's mean. Directions in which the windows of a document
differ then count less. The map is fitted on the windows of the index, of the half of its documents
that the search leaves out, or of another index. Every document searches for those that it cites by
cosine, before and after.

MRR and recall at 10 are means over the citing documents. The differences have a 95 % bootstrap
interval, paired by document.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import lancedb
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from service.index.rows.records import windows
from service.index.rows.vectors import blobs
from training.evaluation.citations import difference_interval, reciprocal_ranks

POWER = 0.5
RIDGE = 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Index:
    """Windows of all documents as unit rows, their documents and lengths, and the citations."""

    windows: Floats
    owner: NDArray[np.int64]
    lengths: Floats
    links: dict[int, set[int]]

    @property
    def documents(self) -> int:
        return int(self.owner[-1]) + 1


@dataclass(frozen=True)
class Map:
    """v → (v - mean) @ weights."""

    mean: Floats
    weights: Floats


def main() -> None:
    """Fit, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="--index-path of docsplit-index")
    parser.add_argument("index")
    parser.add_argument("--fit", nargs=2, metavar=("PATH", "INDEX"), help="another index to fit on")
    given = parser.parse_args()
    index = read(given.path, given.index)
    half = np.random.default_rng(0).permutation(index.documents) < index.documents // 2
    everything = np.ones(index.documents, dtype=bool)
    cases = {
        "the index itself": (fit(index, everything), everything),
        "its other half": (fit(index, ~half), half),
    }
    if given.fit:
        other = read(Path(given.fit[0]), given.fit[1])
        whole = np.ones(other.documents, dtype=bool)
        cases[given.fit[1]] = (fit(other, whole), everything)
    table = Table("fitted on", "citing", "MRR", "after", "95 %", "recall@10", "after", "95 %")
    for name, (made, among) in cases.items():
        before, after = search(index, among, None), search(index, among, made)
        cells = []
        for old, new in zip(before, after, strict=True):
            low, high = difference_interval(old, new)
            cells += [f"{old.mean():.3f}", f"{new.mean():.3f}", f"{low:+.3f} to {high:+.3f}"]
        table.add_row(name, str(len(before[0])), *cells)
    Console(width=120).print(table)


def read(path: Path, name: str) -> Index:
    """The one generation of an index that ``docsplit-index`` left below ``path``."""
    [folder] = (path / "indexes").glob(f"{name}.*.lance")
    table = lancedb.connect(str(folder.parent)).open_table(folder.stem).to_arrow()
    rows = table.select(["id", "links", "window_ends"]).to_pylist()
    held = zip(blobs(table["windows"]), rows, strict=True)
    vectors = [windows(blob or b"", row["window_ends"]).vectors for blob, row in held]
    place = {row["id"]: number for number, row in enumerate(rows)}
    links = {
        place[row["id"]]: {place[x] for x in row["links"] if x in place and x != row["id"]}
        for row in rows
    }
    stacked = np.concatenate(vectors).astype(np.float64)
    return Index(
        stacked / np.linalg.norm(stacked, axis=1, keepdims=True),
        np.repeat(np.arange(len(rows)), [len(v) for v in vectors]),
        # weights are characters instead of tokens
        np.concatenate([np.diff(row["window_ends"], prepend=0) for row in rows]).astype(float),
        {citing: cited for citing, cited in links.items() if cited},
    )


def fit(index: Index, chosen: NDArray[np.bool_]) -> Map:
    """The map of the windows of some documents."""
    kept = chosen[index.owner]
    owner, vectors = index.owner[kept], index.windows[kept]
    counts = np.bincount(owner, minlength=index.documents)[:, None]
    means = np.zeros((index.documents, vectors.shape[1]))
    np.add.at(means, owner, vectors)
    means /= np.maximum(counts, 1)
    differences = vectors - means[owner]
    values, directions = np.linalg.eigh(differences.T @ differences)
    scales = (values / values.mean() + RIDGE) ** -POWER
    return Map(means[chosen].mean(axis=0), (directions * scales) @ directions.T)


def search(index: Index, among: NDArray[np.bool_], made: Map | None) -> tuple[Floats, Floats]:
    """Reciprocal rank and recall at 10 of each citing document among the chosen ones."""
    vectors = index.windows if made is None else (index.windows - made.mean) @ made.weights
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pooled = np.zeros((index.documents, vectors.shape[1]))
    np.add.at(pooled, index.owner, vectors * index.lengths[:, None])
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    place = np.cumsum(among) - 1
    links = {
        int(place[citing]): {int(place[document]) for document in cited if among[document]}
        for citing, cited in index.links.items()
        if among[citing]
    }
    wanted = {citing: cited for citing, cited in links.items() if cited}
    return reciprocal_ranks(torch.from_numpy(pooled[among]), wanted)


if __name__ == "__main__":
    main()
