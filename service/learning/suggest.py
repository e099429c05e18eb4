"""Suggests documents to label that would help a classifier most: uncertain, different ones.

After BADGE (Ash et al. 2020): the gradient of its most probable label represents each document. The
gradient is long if the classifier is uncertain; k-means++ draws long ones that differ. Here the
document's vector replaces the network's last hidden layer.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from docsplit.heads.examples import digest
from docsplit.heads.network import Floats, Scorer
from docsplit.windowing.pooling import Vectors
from service import executors
from service.index import documents
from service.index.documents import Index
from service.index.query.filters import Where, live
from service.index.rows import checksums
from service.index.rows.checksums import Part
from service.index.rows.vectors import vector_matrix
from service.learning.examples import named, read

CANDIDATES = 2000
# candidates times outputs: a head with many outputs gets fewer candidates
MOST_SCORES = 4_000_000
# documents that are read at once, and rows times outputs that are scored at once
CHUNK = 256
SCANNED = 4096
PART_SCORES = 1_000_000


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
    index: Index,
    network: Scorer,
    labelled: set[bytes],
    number: int,
    where: Where | None,
    given: Set[str] = frozenset(),
) -> list[Suggestion]:
    """Documents of an index to label next, the least certain first.

    The same call gives the same answer.

    Args:
        labelled: digests of texts that have a label; documents of these texts are left out.
        number: of documents, at most.
        where: filter for the documents.
        given: ids of documents that have a label, and are left out.
    """
    order = await _scan(index, network, where)
    order = order.filter(pc.invert(pc.is_in(order, pa.array(sorted(given), pa.string()))))
    most = max(1, min(CANDIDATES, MOST_SCORES // network.shape[1]))
    found = await _unlabelled(index, order, labelled, most)
    if not found.ids:
        return []

    def chosen() -> list[Suggestion]:
        probabilities = network.probabilities(found.vectors)
        wrong = errors(probabilities, network.kind == "sigmoid")
        certain = margins(probabilities, network)
        return [
            Suggestion(
                found.ids[row], found.titles[row], probabilities[row].copy(), float(certain[row])
            )
            for row in choose(wrong, found.vectors, number)
        ]

    return await executors.SCORING.run(chosen)


def margins(probabilities: Floats, network: Scorer) -> Floats:
    """How certain a classifier is of each row, 0 to 1.

    For one label: the difference between the two highest probabilities. For several labels: twice
    the distance from .5 of the probability nearest to it.
    """
    if network.kind == "sigmoid":
        return np.asarray(np.abs(2 * probabilities - 1).min(axis=1))
    two = np.partition(probabilities, -2, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0])


def errors(probabilities: Floats, multi_label: bool) -> Floats:
    """Probabilities minus those of the most probable labels, ``[rows, outputs]``.

    A row's gradient is the outer product of its error and its vector (BADGE, algorithm 1).
    """
    if multi_label:
        return probabilities - (probabilities >= 0.5)
    wrong = probabilities.copy()
    wrong[np.arange(len(wrong)), probabilities.argmax(axis=1)] -= 1
    return wrong


def choose(wrong: Floats, vectors: Vectors, number: int) -> list[int]:
    """Rows whose gradients k-means++ draws as its first centres, sorted.

    The first rows replace repeated ones. The gradients, outputs times dimensions numbers each, are
    never computed: the product of two is the product of their errors times that of their vectors.
    The draws are those of scikit-learn's ``kmeans_plusplus``.

    Args:
        wrong: ``errors``.
        vectors: ``[rows, dimensions]``.
    """
    rows = len(wrong)
    if number >= rows:
        return list(range(rows))
    draw = np.random.RandomState(0)
    wide = vectors.astype(np.float64)
    squares = np.square(wrong).sum(axis=1) * np.square(wide).sum(axis=1)

    def distances(centres: NDArray[np.int64]) -> Floats:
        products = (wrong[centres] @ wrong.T) * (wide[centres] @ wide.T)
        found = np.maximum(squares[centres, None] + squares - 2 * products, 0)
        found[np.arange(len(centres)), centres] = 0
        return np.asarray(found)

    # each draw is the best of a few (Arthur and Vassilvitskii 2007)
    trials = 2 + int(np.log(number))
    drawn = [int(draw.choice(rows, p=np.full(rows, 1 / rows)))]
    [nearest] = distances(np.array(drawn))
    for _ in range(1, number):
        points = draw.uniform(size=trials) * nearest.sum()
        tried = np.minimum(np.searchsorted(np.cumsum(nearest), points), rows - 1)
        found = np.minimum(distances(tried), nearest)
        best = int(found.sum(axis=1).argmin())
        nearest = found[best]
        drawn.append(int(tried[best]))
    # if all remaining rows equal a centre, a row is drawn twice
    chosen = dict.fromkeys(drawn)
    for row in range(rows):
        if len(chosen) == number:
            break
        chosen.setdefault(row)
    return sorted(chosen)


async def _scan(index: Index, network: Scorer, where: Where | None) -> pa.ChunkedArray:
    """Ids of the matching documents, the least certain first."""
    query = index.table.query().where(live(where).form)
    batches = await query.select(["id", "vector"]).to_batches(max_batch_length=SCANNED)
    part = max(1, PART_SCORES // network.shape[1])

    def certainties(found: pa.Table) -> pa.Table:
        vectors = vector_matrix(found)
        certain = [
            margins(network.probabilities(vectors[first : first + part]), network)
            for first in range(0, len(vectors), part)
        ]
        # rounded: the last bits of a product depend on the grouping of the rows
        return pa.table({"certainty": np.round(np.concatenate(certain), 6), "id": found["id"]})

    parts = []
    async for batch in batches:
        if batch.num_rows:
            found = pa.Table.from_batches([batch])
            parts.append(await executors.SCORING.run(certainties, found))
    if not parts:
        return pa.chunked_array([], pa.string())
    by = [("certainty", "ascending"), ("id", "ascending")]
    return (await executors.SCORING.run(pa.concat_tables(parts).sort_by, by))["id"]


async def _unlabelled(
    index: Index, ids: pa.ChunkedArray, labelled: set[bytes], most: int
) -> _Candidates:
    """The first ``ids``, in order and up to a number, whose texts have no label."""
    kept: list[str] = []
    titles: list[str | None] = []
    vectors: list[Vectors] = []
    seen: set[bytes] = set(labelled)
    for first in range(0, len(ids), CHUNK):
        chunk: Sequence[str] = ids.slice(first, CHUNK).to_pylist()
        parts = (Part.HEAD, Part.VECTOR)
        found = await named(index, chunk, [*checksums.columns(*parts), "window_ends"])
        found = await index.sound(found, *parts)
        rows = {name: position for position, name in enumerate(found["id"].to_pylist())}
        texts = {
            name: digest(text) async for name, text in read(index, documents.characters(found))
        }
        for name in chunk:
            # absent if it was deleted since the scan
            if name not in texts or texts[name] in seen:
                continue
            seen.add(texts[name])
            kept.append(name)
            titles.append(found["title"][rows[name]].as_py())
            vectors.append(vector_matrix(found.slice(rows[name], 1))[0])
            if len(kept) == most:
                return _Candidates(kept, titles, np.stack(vectors))
    return _Candidates(kept, titles, np.stack(vectors) if vectors else np.zeros((0, 1), np.float32))
