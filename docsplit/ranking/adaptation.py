"""Adapts cosines to one corpus: what all of its documents share counts less.

A profile subtracts a share of the mean document and whitens the rest within documents. This is
within-class covariance normalisation (Hatch et al. 2006): a document is the class, and its windows
are the samples. Directions in which the windows of one document differ then count less.

The gain is measured without labels: the first half of a document should find its second half among
the halves of all documents (the positive pairs of DocSplit). Each half of the documents is measured
with a profile of the other half. Which share of the mean serves searches best differs between
corpora. Halves do not show it; links do, if there are some.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# shares of the mean, to choose one by links, and the share without links; the ridge is a share of
# the mean variance: docs/explanation/experiments/search.md, "Adapted cosines"
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
SHARE = 0.5
RIDGE = 0.05
# fewer documents of several windows do not show a gain, and fewer that cite others choose no share
LEAST_HALVES = 50
# of the documents: fewer with several windows do not speak for those with one
LEAST_SHARE = 0.5
LEAST_CITING = 50
# a longer document counts with this many of its windows, at even distances
MOST_WINDOWS = 128
_FOLDS = 2
# windows in one product of matrices
_BATCH = 1024
# of the ranks of an nDCG at 10
_DISCOUNTS = 1 / np.log2(np.arange(10) + 2)


@dataclass(frozen=True, slots=True)
class Profile:
    """v → (v - mean) @ weights, of unit length.

    Attributes:
        mean: float32 ``[dimensions]``.
        weights: float32 ``[dimensions, dimensions]``.
    """

    mean: Floats
    weights: Floats

    def apply(self, vectors: Floats) -> Floats:
        """Adapted unit vectors, float32 ``[..., dimensions]``."""
        return _unit((vectors - self.mean) @ self.weights)

    def direction(self, vector: Floats) -> Floats:
        """Where documents with a high adapted cosine to a vector lie, float32 ``[dimensions]``.

        Its product with the vector of a document is their adapted cosine, but for a constant, times
        the length of the document's vector after ``weights``. Those lengths differ little. So an
        index of plain vectors finds the candidates of an adapted search.
        """
        return self.weights @ self.apply(vector)


@dataclass(frozen=True, slots=True)
class Gain:
    """What a profile changes for halves of documents.

    Attributes:
        halves: the number of documents that were split.
        raw: mean reciprocal rank by cosine.
        adapted: by the cosine of adapted vectors.
        error: half of the 95 % interval of the difference.
    """

    halves: int
    raw: float
    adapted: float
    error: float

    @property
    def difference(self) -> float:
        """The mean reciprocal rank that the profile adds."""
        return self.adapted - self.raw

    @property
    def sure(self) -> bool:
        """Whether the whole interval of the difference lies above zero."""
        return self.halves >= LEAST_HALVES and self.difference > self.error

    def speaks_for(self, documents: int) -> bool:
        """Whether enough of so many documents have several windows."""
        return self.halves >= LEAST_SHARE * documents


NO_GAIN = Gain(0, 0.0, 0.0, 0.0)


class Sample:
    """The statistics of a sample of documents; no windows are kept.

    Args:
        dimensions: of the vectors.
    """

    def __init__(self, dimensions: int) -> None:
        self._places: dict[str, int] = {}
        self._links: list[Sequence[str]] = []
        self._vectors: list[Floats] = []
        self._halves: list[list[Floats]] = [[] for _ in range(_FOLDS)]
        self._scatter = np.zeros((_FOLDS, dimensions, dimensions))
        self._differences: list[list[Floats]] = [[] for _ in range(_FOLDS)]

    def __len__(self) -> int:
        """The number of documents."""
        return len(self._vectors)

    def add(self, name: str, vector: Floats, windows: Floats, links: Sequence[str] = ()) -> None:
        """Add a document.

        Args:
            name: its id.
            vector: float32 ``[dimensions]``, unit length.
            windows: float32 ``[windows, dimensions]``, unit rows in the order of the text.
            links: ids of documents that it cites.
        """
        fold = len(self) % _FOLDS
        self._places[name] = len(self)
        self._links.append(links)
        self._vectors.append(vector)
        if len(windows) > 1:
            count = len(windows)
            windows = windows[np.linspace(0, count - 1, min(count, MOST_WINDOWS)).astype(np.int64)]
            self._differences[fold].append(windows - windows.mean(axis=0))
            if sum(map(len, self._differences[fold])) >= _BATCH:
                self._sum_up(fold)
            middle = (len(windows) + 1) // 2
            parts = windows[:middle].mean(axis=0), windows[middle:].mean(axis=0)
            self._halves[fold].append(_unit(np.stack(parts)))

    def fit(self) -> tuple[Profile | None, Gain]:
        """The profile of all documents, if it helps, and its gain."""
        for fold in range(_FOLDS):
            self._sum_up(fold)
        weights = _weights(self._scatter.sum(axis=0))
        if weights is None:
            return None, NO_GAIN
        share, worse = self._by_links(weights)
        gain = self._gain(share)
        if worse or not gain.sure or not gain.speaks_for(len(self)):
            return None, gain
        return _profile(self._vectors, weights, share), gain

    def _sum_up(self, fold: int) -> None:
        if self._differences[fold]:
            differences = np.concatenate(self._differences[fold])
            self._scatter[fold] += differences.T @ differences
            self._differences[fold].clear()

    def _by_links(self, weights: Floats) -> tuple[float, bool]:
        """The share that finds best what documents cite; whether raw is better.

        The share with the highest nDCG at 10, if it is surely better than ``SHARE``: samples of one
        index differ in the best share.
        """
        cited = [
            [self._places[x] for x in links if self._places.get(x, place) != place]
            for place, links in enumerate(self._links)
        ]
        citing = [place for place, places in enumerate(cited) if places]
        if len(citing) < LEAST_CITING:
            return SHARE, False
        vectors = np.stack(self._vectors)
        wanted = np.zeros((len(citing), len(vectors)), dtype=bool)
        for row, place in enumerate(citing):
            wanted[row, cited[place]] = True
        ideal = np.cumsum(_DISCOUNTS)[np.minimum(wanted.sum(axis=1), len(_DISCOUNTS)) - 1]

        def quality(found: Floats) -> NDArray[np.float64]:
            scores = found[citing] @ found.T
            scores[np.arange(len(citing)), citing] = -np.inf
            best = np.argsort(-scores, axis=1, kind="stable")[:, : len(_DISCOUNTS)]
            hits = np.take_along_axis(wanted, best, axis=1)
            return np.asarray(hits @ _DISCOUNTS[: best.shape[1]] / ideal)

        profiles = {share: _profile(self._vectors, weights, share) for share in SHARES}
        found = {share: quality(profile.apply(vectors)) for share, profile in profiles.items()}
        best = max(found, key=lambda share: float(found[share].mean()))
        gain = found[best] - found[SHARE]
        if gain.mean() <= _error(gain):
            best = SHARE
        return best, bool(found[best].mean() < quality(vectors).mean())

    def _gain(self, share: float) -> Gain:
        """The gain on halves; none without documents of several windows in both folds."""
        raw, adapted = [], []
        for fold in range(_FOLDS):
            other = 1 - fold
            weights = _weights(self._scatter[other])
            if weights is None or not self._halves[fold]:
                return NO_GAIN
            profile = _profile(self._vectors[other::_FOLDS], weights, share)
            raw.append(self._ranks(fold, None))
            adapted.append(self._ranks(fold, profile))
        before, after = np.concatenate(raw), np.concatenate(adapted)
        means = float(before.mean()), float(after.mean())
        return Gain(len(before), *means, _error(after - before))

    def _ranks(self, fold: int, profile: Profile | None) -> NDArray[np.float64]:
        """Reciprocal ranks of the second halves for the first halves of a fold."""
        halves = np.stack([*self._halves[fold], *self._halves[1 - fold]])
        if profile is not None:
            halves = profile.apply(halves)
        first, second = halves[:, 0], halves[:, 1]
        own = np.arange(len(self._halves[fold]))
        seconds, firsts = first[own] @ second.T, first[own] @ first.T
        firsts[own, own] = -np.inf
        wanted = seconds[own, own, None]
        better = (seconds > wanted).sum(1) + (firsts > wanted).sum(1)
        return np.asarray(1.0 / (1 + better))


def _error(differences: NDArray[np.float64]) -> float:
    """Half of the 95 % interval of the mean."""
    return 1.96 * float(differences.std()) / math.sqrt(len(differences))


def _weights(scatter: NDArray[np.float64]) -> Floats | None:
    """The whitening of a scatter matrix; None if it is zero."""
    values, directions = np.linalg.eigh(scatter)
    spread = float(values.mean())
    if not spread > 0:
        return None
    scales = (np.maximum(values, 0) / spread + RIDGE) ** -0.5
    return np.asarray((directions * scales) @ directions.T, dtype=np.float32)


def _profile(vectors: Sequence[Floats], weights: Floats, share: float) -> Profile:
    mean = share * np.stack(vectors).mean(axis=0, dtype=np.float64)
    return Profile(mean.astype(np.float32), weights)


def _unit(vectors: NDArray[np.floating[Any]]) -> Floats:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), dtype=np.float32)
