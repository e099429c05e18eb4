"""Positions and topics of vectors: t-SNE in two dimensions, and HDBSCAN on it.

t-SNE (van der Maaten and Hinton 2008) runs on the graph of nearest neighbours with uniform weights
(Böhm et al. 2022, "Attraction-Repulsion Spectrum in Neighbor Embeddings"). openTSNE interpolates
its forces by Fourier transforms (Linderman et al. 2019, FIt-SNE). HDBSCAN (Campello et al. 2013)
finds dense groups of any shape. docs/explanation/experiments/scale.md, "Maps", compares libraries.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from service.index.maps import Floats, Integers

COMPONENTS = 50
NEIGHBOURS = 15
# with fewer documents, the principal components show as much
LEAST_DOCUMENTS = 30
# from here on the interpolation is faster than the Barnes-Hut tree
_MANY = 5000
_EARLY, _LATE = 125, 375
_STEP = 25
# the largest topic as a share of the documents, and their share without a topic, for groups to
# stand as they are; with larger ones, each topic has at most the last share
_LARGEST = 1 / 3
_MOST_WITHOUT = 1 / 3
_MOST_SHARE = 1 / 8
_BATCH = 8192


def fit(vectors: NDArray[np.float16]) -> tuple[Floats, Floats]:
    """The mean of the unit vectors and their first principal components.

    Args:
        vectors: ``[n, dimensions]``.

    Returns:
        ``[dimensions]`` and ``[dimensions, components]``.
    """
    width = vectors.shape[1]
    total, products = np.zeros(width), np.zeros((width, width))
    for start in range(0, len(vectors), _BATCH):
        part = unit(vectors[start : start + _BATCH])
        total += part.sum(axis=0, dtype=np.float64)
        products += part.T @ part
    mean = total / max(1, len(vectors))
    _, directions = np.linalg.eigh(products / max(1, len(vectors)) - np.outer(mean, mean))
    basis = directions[:, ::-1][:, :COMPONENTS]
    # the sign of a component is arbitrary: choose the same one each time
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(basis.shape[1])]
    basis = basis * np.where(largest < 0, -1, 1)
    return mean.astype(np.float32), basis.astype(np.float32)


def unit(vectors: NDArray[np.float16]) -> Floats:
    """Vectors as float32 of unit length."""
    found = vectors.astype(np.float32)
    found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
    return found


def positions(points: Floats, progress: Callable[[float], None]) -> Floats:
    """Positions in two dimensions; the same points always get the same ones.

    Args:
        points: ``[n, components]``.
        progress: called with the share of the work done, 0 to 1.

    Returns:
        ``[n, 2]``.
    """
    number = len(points)
    start = np.zeros((number, 2))
    start[:, : min(2, points.shape[1])] = points[:, :2]
    # openTSNE divides by the spread, which equal documents lack
    if number < LEAST_DOCUMENTS or np.ptp(start[:, 0]) == 0:
        return start.astype(np.float32)
    # this import takes a second
    from openTSNE import TSNEEmbedding
    from openTSNE.initialization import rescale

    affinities = _affinities(points, lambda share: progress(share / 3))
    method = "fft" if number > _MANY else "bh"
    found = TSNEEmbedding(
        rescale(start), affinities, negative_gradient_method=method, n_jobs=1, random_state=0
    )
    for done, steps, exaggeration, momentum in ((0, _EARLY, 12, 0.5), (_EARLY, _LATE, 1, 0.8)):

        def note(iteration: int, *_: object, done: int = done) -> None:
            progress((1 + 2 * (done + iteration) / (_EARLY + _LATE)) / 3)

        found.optimize(
            steps,
            exaggeration=exaggeration,
            momentum=momentum,
            inplace=True,
            callbacks=note,
            callbacks_every_iters=_STEP,
        )
    return np.asarray(found, dtype=np.float32)


def topics(positions: Floats) -> Integers:
    """The topic of each position, the largest topic first; -1 for none.

    Args:
        positions: ``[n, 2]``.
    """
    number = len(positions)
    if number < LEAST_DOCUMENTS:
        return np.full(number, -1, dtype=np.int32)
    from sklearn.cluster import HDBSCAN

    least = max(5, round(math.sqrt(number) / 3))

    def grouped(most: int | None) -> Integers:
        found = HDBSCAN(
            min_cluster_size=least, min_samples=3, max_cluster_size=most, copy=True
        ).fit(positions)
        labels: Integers = found.labels_
        return labels

    def without(labels: Integers) -> float:
        return float((labels < 0).mean())

    labels = grouped(None)
    largest = np.bincount(labels + 1)[1:].max(initial=0)
    # one group of almost all documents may be the most stable one
    if largest > _LARGEST * number or without(labels) > _MOST_WITHOUT:
        parts = grouped(max(least, round(_MOST_SHARE * number)))
        # a larger group that has no parts is none then
        labels = parts if without(parts) <= _MOST_WITHOUT else labels
    sizes = np.bincount(labels[labels >= 0])
    rank = np.empty(len(sizes) + 1, dtype=np.int32)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    # the label -1 takes the last place
    rank[-1] = -1
    numbers: Integers = rank[labels]
    return numbers


def _affinities(points: Floats, progress: Callable[[float], None]):  # type: ignore[no-untyped-def]
    """The symmetric graph of nearest neighbours, for openTSNE, which has no types."""
    from openTSNE.affinity import PrecomputedAffinities
    from scipy.sparse import csr_array, csr_matrix
    from sklearn.neighbors import NearestNeighbors

    number = len(points)
    count = min(NEIGHBOURS, number - 1)
    near = NearestNeighbors(n_neighbors=count + 1, algorithm="brute", n_jobs=1).fit(points)
    found = []
    for start in range(0, number, _BATCH):
        part = points[start : start + _BATCH]
        found.append(near.kneighbors(part, return_distance=False)[:, 1:].astype(np.int32))
        progress(min(1.0, (start + _BATCH) / number))
    places = np.concatenate(found).ravel()
    ends = np.arange(0, number * count + 1, count)
    graph = csr_array((np.ones(len(places)), places, ends), shape=(number, number))
    either = graph + graph.T
    either.data[:] = 1
    return PrecomputedAffinities(csr_matrix(either))
