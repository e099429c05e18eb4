"""Draws any number of vectors that behave as real ones do.

    python -m benchmarks.index.drawn INDEX_PATH [INDEX_PATH ...] --rows 1001000 vectors.npy

Reads the windows of all indexes in some folders. A mixture of Gaussians is fitted to them: each
cluster of k-means is one, with the directions in which it spreads most and even noise in all
others. The command prints the cosines of a vector's neighbours and the intrinsic dimension
(Levina and Bickel 2004) of as many real and drawn vectors. Drawn vectors have a somewhat higher
dimension, so searches among them are somewhat harder.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from sklearn.cluster import MiniBatchKMeans

from benchmarks.rig.stored_index import opened
from service.index.indexes import by_index, connect
from service.index.rows.vectors import window_blobs
from service.index.storage.database import table_names

Vectors = NDArray[np.float32]

QUERIES = 500
NEIGHBOURS = 100
# rows that are drawn at once
BLOCK = 100_000


@dataclass(frozen=True, slots=True)
class Cluster:
    """One Gaussian of the mixture.

    Attributes:
        share: of the rows.
        mean: float32 ``[dimensions]``.
        spread: directions times their deviation, float32 ``[rank, dimensions]``.
        noise: deviation in all other directions.
    """

    share: float
    mean: Vectors
    spread: Vectors
    noise: float


def main() -> None:
    """Read, fit, draw, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", help="index_path of services")
    parser.add_argument("destination", type=Path, help=".npy file to write")
    parser.add_argument("--rows", type=int, default=101_000)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32")
    given = parser.parse_args()
    console = Console()
    real = asyncio.run(windows(given.folders))
    draw = np.random.default_rng(0)
    real = real[draw.permutation(len(real))]
    with console.status(f"fitting to {len(real):,} windows"):
        mixture = fit(real, given.clusters, given.rank)
    made = np.lib.format.open_memmap(
        given.destination, "w+", given.dtype, (given.rows, real.shape[1])
    )
    for first in track(range(0, given.rows, BLOCK), "drawing"):
        made[first : first + BLOCK] = drawn(mixture, min(BLOCK, given.rows - first), draw)
    made.flush()
    size = min(len(real), given.rows)
    for name, rows in (("real", real[:size]), ("drawn", np.array(made[:size], np.float32))):
        console.print(f"{name}, {size:,}: {neighbourhood(rows)}")


async def windows(folders: Sequence[Path]) -> Vectors:
    """The different windows of all indexes below some folders, float32 of unit length."""
    parts: list[NDArray[np.float16]] = []
    dimensions = 0
    for folder in folders:
        names = by_index(await table_names(await connect(f"{folder}/indexes")))
        for name in names:
            index = await (await opened(folder, name)).open(name)
            found = await index.table.query().select(["windows"]).to_arrow()
            blobs = window_blobs(found["windows"])
            parts += [np.frombuffer(blob, np.float16) for blob in blobs if blob is not None]
            dimensions = index.schema.field("vector").type.list_size
    every = np.concatenate(parts).reshape(-1, dimensions)
    rows = np.unique(every, axis=0).astype(np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def fit(rows: Vectors, clusters: int, rank: int) -> list[Cluster]:
    """A mixture of Gaussians for vectors."""
    means = MiniBatchKMeans(clusters, batch_size=8192, n_init=1, max_iter=4, random_state=0)
    labels = means.fit_predict(rows)
    return list(_clusters(rows, labels, rank))


def _clusters(rows: Vectors, labels: NDArray[np.int32], rank: int) -> Iterator[Cluster]:
    for label in np.unique(labels):
        own = rows[labels == label]
        mean = own.mean(axis=0)
        _, sizes, directions = np.linalg.svd(own - mean, full_matrices=False)
        deviations = sizes / np.sqrt(max(len(own) - 1, 1))
        kept = min(rank, len(sizes))
        rest = float(np.square(deviations[kept:]).sum()) / max(rows.shape[1] - kept, 1)
        spread = (deviations[:kept, None] * directions[:kept]).astype(np.float32)
        yield Cluster(len(own) / len(rows), mean, spread, rest**0.5)


def drawn(mixture: Sequence[Cluster], rows: int, draw: np.random.Generator) -> Vectors:
    """Unit vectors from a mixture, in random order."""
    counts = draw.multinomial(rows, [cluster.share for cluster in mixture])
    parts = []
    for count, cluster in zip(counts, mixture, strict=True):
        within = draw.standard_normal((count, len(cluster.spread)), np.float32) @ cluster.spread
        noise = draw.standard_normal((count, cluster.mean.size), np.float32)
        parts.append(cluster.mean + within + np.float32(cluster.noise) * noise)
    found = np.concatenate(parts)[draw.permutation(rows)]
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def neighbourhood(rows: Vectors) -> str:
    """Mean cosines of neighbours, and the median intrinsic dimension, of some rows."""
    queries, others = rows[:QUERIES], rows[QUERIES:]
    cosines = -np.sort(-(queries @ others.T), axis=1)[:, :NEIGHBOURS]
    distances = np.sqrt(np.maximum(2 - 2 * cosines, 1e-9))
    ratios = np.log(distances[:, -1:] / distances[:, :-1]).mean(axis=1)
    at = ", ".join(
        f"{cosines[:, place - 1].mean():.3f} at {place}" for place in (1, 10, NEIGHBOURS)
    )
    return f"cosine {at}; intrinsic dimension {np.median(1 / ratios):.1f}"


if __name__ == "__main__":
    main()
