"""Labels of the documents on a map by a classifier, from their stored vectors.

A process remembers the labels under a hash of the id and the time of each document, so a document
that changes gets its label again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from numpy.typing import NDArray

from docsplit.heads.network import Scorer
from docsplit.windowing.pooling import Vectors
from features.maps.current import Current
from service import executors
from service.index.maps import Floats, Integers
from service.index.rows import checksums
from service.index.rows.checksums import Part, texts
from service.index.rows.vectors import vector_matrix

NONE = -1
# documents times outputs that one call scores: 100,000 documents with up to 256 labels
MOST_SCORES = 25_600_000
# documents that are read at once, and rows times outputs that are scored at once
_READ = 2048
_PART_SCORES = 1_000_000
# classifiers of indexes whose labels a process remembers, and documents of each: 16 bytes for one
_KEPT = 8
_KEPT_DOCUMENTS = 400_000
# of a label of a classifier that gives several
_LEAST = 0.5


@dataclass(frozen=True, slots=True)
class Labels:
    """What a classifier says of documents.

    Attributes:
        outputs: the network's most probable output for each, or ``NONE``, ``[n]``.
        scores: its probability, 0 without a vector, ``[n]``.
        pending: number of documents that later calls label.
    """

    outputs: Integers
    scores: Floats
    pending: int


@dataclass(frozen=True, slots=True)
class _Known:
    """Labels of documents under the hash of each, in its ascending order."""

    hashes: NDArray[np.int64]
    outputs: Integers
    scores: Floats

    def with_others(self, others: _Known) -> _Known:
        hashes = np.concatenate([self.hashes, others.hashes])
        order = np.argsort(hashes, kind="stable")
        outputs = np.concatenate([self.outputs, others.outputs])
        scores = np.concatenate([self.scores, others.scores])
        return _Known(hashes[order], outputs[order], scores[order])

    def lacks(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of the documents that have no label here."""
        return np.flatnonzero(self._places(hashes) < 0)

    def of(self, hashes: NDArray[np.int64]) -> Labels:
        """The labels of documents."""
        places = self._places(hashes)
        there = places >= 0
        outputs = np.full(len(hashes), NONE, dtype=np.int32)
        scores = np.zeros(len(hashes), dtype=np.float32)
        outputs[there] = self.outputs[places[there]]
        scores[there] = self.scores[places[there]]
        return Labels(outputs, scores, int((~there).sum()))

    def _places(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(self.hashes):
            return np.full(len(hashes), -1)
        found = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[found] == hashes, found, -1)


class MapLabels:
    """The labels of all maps' documents; one call at a time reads vectors."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, str], _Known] = LRUCache(_KEPT)
        self._turn = asyncio.Lock()

    async def get(
        self, current: Current, places: NDArray[np.int64], training: str, network: Scorer
    ) -> Labels:
        """The labels of some documents of a map.

        One call scores up to ``MOST_SCORES``, at least one batch; later calls score further ones.
        A damaged document has no label.

        Args:
            places: of the documents in ``current.ids``, ``[n]``.
            training: names the network; another one has another name.
        """
        key = (current.index.table.name, training)
        hashes = await executors.STORE.run(_hashes, current, places)
        async with self._turn:
            known = self._known.get(key, _NOTHING)
            new = await executors.STORE.run(known.lacks, hashes)
            if len(known.hashes) + len(new) > _KEPT_DOCUMENTS:
                known, new = _NOTHING, np.arange(len(places))
            for start in range(0, min(len(new), _most(network)), _READ):
                rows = current.rows[places[new[start : start + _READ]]]
                # a call that meets its deadline leaves what it has done
                known = self._known[key] = await _read(current, rows, network, known)
        return await executors.STORE.run(known.of, hashes)


def _most(network: Scorer) -> int:
    return MOST_SCORES // network.shape[1]


def _hashes(current: Current, places: NDArray[np.int64]) -> NDArray[np.int64]:
    times = current.updated[places].tolist()
    pairs = zip((current.ids[place] for place in places), times, strict=True)
    return np.fromiter(map(hash, pairs), np.int64, len(places))


async def _read(
    current: Current, rows: NDArray[np.int64], network: Scorer, known: _Known
) -> _Known:
    """The known labels and those of the documents in some rows, unless these have moved."""
    columns = [*checksums.columns(Part.VECTOR), "updated"]
    taken = current.index.table.take_row_ids(rows.tolist()).select(columns)
    found = await taken.to_arrow()
    sound = await current.index.sound(found, Part.VECTOR)
    return await executors.SCORING.run(_labelled, found, sound, network, known)


def _labelled(found: pa.Table, sound: pa.Table, network: Scorer, known: _Known) -> _Known:
    names = texts(found["id"])
    times = found["updated"].to_pylist()
    hashes = np.fromiter(map(hash, zip(names, times, strict=True)), np.int64, len(names))
    outputs = np.full(len(names), NONE, dtype=np.int32)
    scores = np.zeros(len(names), dtype=np.float32)
    row_of = {name: row for row, name in enumerate(names)}
    rows = [row_of[name] for name in texts(sound["id"])]
    if rows:
        outputs[rows], scores[rows] = best(network, vector_matrix(sound))
    return known.with_others(_Known(hashes, outputs, scores))


def best(network: Scorer, vectors: Vectors) -> tuple[Integers, Floats]:
    """The most probable output for each vector and its probability.

    A classifier that gives several labels gives ``NONE`` if all are improbable.

    Args:
        vectors: ``[n, dimensions]``.
    """
    outputs = np.zeros(len(vectors), dtype=np.int32)
    scores = np.zeros(len(vectors), dtype=np.float32)
    part = max(1, _PART_SCORES // network.shape[1])
    for start in range(0, len(vectors), part):
        rows = slice(start, start + part)
        probabilities = network.probabilities(vectors[rows])
        outputs[rows] = probabilities.argmax(axis=1)
        scores[rows] = probabilities.max(axis=1)
    if network.kind == "sigmoid":
        outputs[scores < _LEAST] = NONE
    return outputs, scores


_NOTHING = _Known(
    np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
)
