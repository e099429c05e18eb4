"""Positions and topics of vectors: t-SNE in two dimensions, and HDBSCAN on it.

t-SNE (van der Maaten and Hinton 2008) runs on the graph of nearest neighbours with uniform weights
(Böhm et al. 2022, "Attraction-Repulsion Spectrum in Neighbor Embeddings"). openTSNE interpolates
its forces by Fourier transforms (Linderman et al. 2019, FIt-SNE). HDBSCAN (Campello et al. 2013)
finds dense groups of any shape. Where groups overlap, the graph joins parts while modularity grows.
docs/explanation/experiments/scale.md, "Maps", compares libraries.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from service.index.maps import Floats, Integers

COMPONENTS = 50
NEIGHBOURS = 15
# with fewer documents, the principal components show as much
LEAST_DOCUMENTS = 30
# from here on the interpolation is faster than the Barnes-Hut tree
_MANY = 5000
_EARLY, _LATE = 125, 375
_STEP = 25
# the largest topic as a share of the documents, and their share without a topic, for dense groups
# to stand as they are; otherwise parts of at most the last share are joined
_LARGEST = 1 / 3
_MOST_WITHOUT = 1 / 6
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


def positions(points: Floats, graph: csr_matrix, progress: Callable[[float], None]) -> Floats:
    """Positions in two dimensions; the same points in the same order always get the same ones.

    Args:
        points: ``[n, components]``.
        graph: of their neighbours.
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
    from openTSNE.affinity import PrecomputedAffinities
    from openTSNE.initialization import rescale

    method = "fft" if number > _MANY else "bh"
    found = TSNEEmbedding(
        rescale(start),
        PrecomputedAffinities(graph),
        negative_gradient_method=method,
        n_jobs=1,
        random_state=0,
    )
    for done, steps, exaggeration, momentum in ((0, _EARLY, 12, 0.5), (_EARLY, _LATE, 1, 0.8)):

        def note(iteration: int, *_: object, done: int = done) -> None:
            progress((done + iteration) / (_EARLY + _LATE))

        found.optimize(
            steps,
            exaggeration=exaggeration,
            momentum=momentum,
            inplace=True,
            callbacks=note,
            callbacks_every_iters=_STEP,
        )
    return np.asarray(found, dtype=np.float32)


def topics(positions: Floats, points: Floats, graph: csr_matrix) -> Integers:
    """The topic of each position, the largest topic first; -1 for none.

    Args:
        positions: ``[n, 2]``.
        points: ``[n, components]``.
        graph: of the documents' neighbours.
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

    labels = grouped(None)
    largest = np.bincount(labels + 1)[1:].max(initial=0)
    # one group of almost all documents may be the most stable one, or overlapping groups have no
    # dense middles: then the graph joins small parts
    if largest > _LARGEST * number or 1 > (labels < 0).mean() > _MOST_WITHOUT:
        parts = _spread(grouped(max(least, round(_MOST_SHARE * number))), graph)
        # what is apart from all parts stays a group
        apart = np.where(labels < 0, -1, labels + parts.max() + 1)
        labels = _joined(np.where(parts < 0, apart, parts), graph)
    # the layout has no room for so many copies of a document in one place
    same = np.unique(points.round(2), axis=0, return_inverse=True)[1].ravel()
    many = np.bincount(same)[same] > _MOST_SHARE * number
    labels = np.where(many, labels.max() + 1 + same, labels)
    return _ranked(labels)


def _spread(labels: Integers, graph: csr_matrix) -> Integers:
    """Documents without a group get that of most of their neighbours, as far as these have one."""
    while 0 < (labels < 0).sum() < len(labels):
        lost = np.flatnonzero(labels < 0)
        votes = graph[lost] @ _members(labels)
        reached = np.asarray(votes.max(axis=1).todense()).ravel() > 0
        if not reached.any():
            break
        labels = labels.copy()
        labels[lost[reached]] = np.asarray(votes.argmax(axis=1)).ravel()[reached]
    return labels


def _joined(labels: Integers, graph: csr_matrix) -> Integers:
    """Groups, joined while modularity grows (Clauset, Newman and Moore 2004)."""
    members = _members(labels)
    links = (members.T @ graph @ members).toarray()
    links /= max(1, links.sum())
    into = np.arange(len(links))
    while len(links) > 1:
        shares = links.sum(axis=0)
        gains = np.triu(links - np.outer(shares, shares), 1)
        one, other = np.unravel_index(gains.argmax(), gains.shape)
        if gains[one, other] <= 0:
            break
        links[one] += links[other]
        links[:, one] += links[:, other]
        links = np.delete(np.delete(links, other, axis=0), other, axis=1)
        into[into == other] = one
        into[into > other] -= 1
    return np.where(labels < 0, -1, into[labels])


def _members(labels: Integers) -> csr_matrix:
    """1 for each document and its group, ``[n, groups]``."""
    rows = np.flatnonzero(labels >= 0)
    shape = (len(labels), int(labels.max(initial=-1)) + 1)
    return csr_matrix((np.ones(len(rows)), (rows, labels[rows])), shape=shape)


def _ranked(labels: Integers) -> Integers:
    """The same groups, the largest first."""
    sizes = np.bincount(labels[labels >= 0])
    rank = np.empty(len(sizes) + 1, dtype=np.int32)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    # the label -1 takes the last place
    rank[-1] = -1
    numbers: Integers = rank[labels]
    return numbers


def neighbours(points: Floats, progress: Callable[[float], None]) -> csr_matrix:
    """The symmetric graph of nearest neighbours, 1 for each of its edges.

    Args:
        points: ``[n, components]``.
        progress: called with the share of the work done, 0 to 1.

    Returns:
        ``[n, n]``.
    """
    from sklearn.neighbors import NearestNeighbors

    number = len(points)
    count = min(NEIGHBOURS, number - 1)
    if count < 1:
        return csr_matrix((number, number))
    near = NearestNeighbors(n_neighbors=count + 1, algorithm="brute", n_jobs=1).fit(points)
    found = []
    for start in range(0, number, _BATCH):
        part = points[start : start + _BATCH]
        found.append(near.kneighbors(part, return_distance=False)[:, 1:].astype(np.int32))
        progress(min(1.0, (start + _BATCH) / number))
    places = np.concatenate(found).ravel()
    ends = np.arange(0, number * count + 1, count)
    graph = csr_matrix((np.ones(len(places)), places, ends), shape=(number, number))
    either = graph + graph.T
    either.data[:] = 1
    return csr_matrix(either)
