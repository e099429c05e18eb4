"""Documents whose labels would help a classifier most: uncertain ones that differ.

After BADGE (Ash et al. 2020): every document stands for the gradient that its most probable label
would give, which is long where the classifier is uncertain; k-means++ draws long ones that differ.
Here the document's vector takes the place of the network's last hidden layer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from lancedb.expr import Expr, col, lit
from numpy.typing import NDArray

from service.documents.pooling import Vectors
from service.heads.examples import digest
from service.heads.network import Floats, Scorer
from service.index import checksums
from service.index.checksums import Part
from service.index.documents import LIVE, Index, matrix

CANDIDATES = 2000
# floats of all gradients: with many labels there are fewer candidates
MOST_FLOATS = 50_000_000
# documents whose texts are read at once
CHUNK = 256
_PARTS = (Part.HEAD, Part.TEXT, Part.VECTOR)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A document to label.

    Attributes:
        probabilities: of the classifier's outputs, ``[outputs]``.
        margin: how certain the classifier is, 0 to 1.
    """

    id: str
    title: str | None
    probabilities: Floats
    margin: float


@dataclass(frozen=True, slots=True)
class _Candidates:
    ids: list[str]
    titles: list[str | None]
    vectors: Vectors


async def suggest(
    index: Index, network: Scorer, labelled: set[bytes], number: int, where: Expr | None
) -> list[Suggestion]:
    """Documents of an index to label next, the least certain first.

    The same call gives the same answer.

    Args:
        labelled: digests of texts that have a label; documents of these texts are left out.
        number: of documents, at most.
        where: what documents must pass.
    """
    ids, certainties = await _scan(index, network, where)
    # rounded, since the last bits of a product depend on how the rows were grouped
    order = sorted(range(len(ids)), key=lambda row: (round(float(certainties[row]), 6), ids[row]))
    inputs, outputs = network.shape
    dimensions = inputs * outputs
    most = max(number, min(CANDIDATES, MOST_FLOATS // dimensions))
    found = await _unlabelled(index, [ids[row] for row in order], labelled, most)
    if not found.ids:
        return []
    probabilities = network.probabilities(found.vectors)
    rows = await asyncio.to_thread(
        choose, gradients(probabilities, found.vectors, network.kind == "sigmoid"), number
    )
    certain = margins(probabilities, network)
    return [
        Suggestion(found.ids[row], found.titles[row], probabilities[row], float(certain[row]))
        for row in rows
    ]


def margins(probabilities: Floats, network: Scorer) -> Floats:
    """How certain a classifier is of each row, 0 to 1.

    The distance of the two most probable labels; of a multi-label classifier that of the label
    nearest to .5 from the nearer end, doubled.
    """
    if network.kind == "sigmoid":
        return np.asarray(np.abs(2 * probabilities - 1).min(axis=1))
    two = np.partition(probabilities, -2, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0])


def gradients(probabilities: Floats, vectors: Vectors, multi_label: bool) -> Vectors:
    """Gradient embeddings, float32 ``[rows, outputs * dimensions]`` (BADGE, algorithm 1)."""
    if multi_label:
        guessed = probabilities >= 0.5
    else:
        guessed = np.eye(probabilities.shape[1], dtype=bool)[probabilities.argmax(axis=1)]
    errors = (probabilities - guessed).astype(np.float32)
    return (errors[:, :, None] * vectors[:, None, :]).reshape(len(vectors), -1)


def choose(embeddings: Vectors, number: int) -> list[int]:
    """Rows that k-means++ draws as its first centres, sorted; the first fill up what it repeats."""
    if number >= len(embeddings):
        return list(range(len(embeddings)))
    from sklearn.cluster import kmeans_plusplus

    _, drawn = kmeans_plusplus(embeddings, number, random_state=0)
    # where all that is left equals a centre, a row is drawn twice
    rows = dict.fromkeys(drawn.tolist())
    for row in range(len(embeddings)):
        if len(rows) == number:
            break
        rows.setdefault(row)
    return sorted(rows)


async def _scan(
    index: Index, network: Scorer, where: Expr | None
) -> tuple[list[str], NDArray[np.float64]]:
    query = index.table.query().where(LIVE if where is None else LIVE & where)
    ids: list[str] = []
    parts = [np.zeros(0)]
    async for batch in await query.select(["id", "vector"]).to_batches():
        found = pa.Table.from_batches([batch])
        if found.num_rows:
            ids += found["id"].to_pylist()
            parts.append(margins(network.probabilities(matrix(found)), network))
    return ids, np.concatenate(parts)


async def _unlabelled(
    index: Index, ids: Sequence[str], labelled: set[bytes], most: int
) -> _Candidates:
    """The first of ``ids``, at most so many, whose texts are not labelled, in that order."""
    kept: list[str] = []
    titles: list[str | None] = []
    vectors: list[Vectors] = []
    seen: set[bytes] = set(labelled)
    for first in range(0, len(ids), CHUNK):
        chunk = ids[first : first + CHUNK]
        where = col("id").isin([lit(name) for name in chunk])
        found = await index.select(where, checksums.columns(*_PARTS), len(chunk))
        found = await index.sound(found, *_PARTS)
        held = found.select(["id", "title", "text"]).to_pylist()
        rows = {row["id"]: position for position, row in enumerate(held)}
        for name in chunk:
            # absent where it was deleted since the scan
            if name not in rows:
                continue
            row = held[rows[name]]
            text = digest(row["text"])
            if text not in seen:
                seen.add(text)
                kept.append(name)
                titles.append(row["title"])
                vectors.append(matrix(found)[rows[name]])
            if len(kept) == most:
                return _Candidates(kept, titles, np.stack(vectors))
    return _Candidates(kept, titles, np.stack(vectors) if vectors else np.zeros((0, 1), np.float32))
