"""Computes the map of a generation from its table.

Memory holds the ids, half-precision vectors of the documents whose positions are computed, and the
graph of their neighbours: some 3 kB for each of these documents, besides the libraries.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from features.maps import layout, naming
from features.maps.current import place
from service.index import maps as stored
from service.index.documents import LIVE, Index
from service.index.maps import Floats, Integers, Space, Topic
from service.index.rows import checksums
from service.index.rows.checksums import Part, texts
from service.index.rows.keyed import Row
from service.index.rows.vectors import vector_matrix

# documents whose positions are computed: a random sample of a larger index. The others are placed
# by their neighbours in it.
MOST_COMPUTED = 100_000
# documents of each topic whose words name it, those nearest to its middle, and examples
NAMING = 40
EXAMPLES = 5
# components that tell documents apart; equal ones stay in the order of their ids
_ORDERING = 16
# vectors read at a time
_BATCH = 1024


Progress = Callable[[str, float], None]
Halves = NDArray[np.float16]


async def compute(index: Index, progress: Progress) -> Row:
    """The map of the documents of an index, as ``Maps.put`` stores it.

    Args:
        progress: called with the step and the share of it that is done, 0 to 1.
    """
    ids, updated = await _ids(index)
    computed = _drawn(ids)
    vectors, there = await _vectors(index, ids, computed, progress)
    # a document that was deleted meanwhile, or that is damaged, has no place
    computed = computed[there]
    # neither ids nor the order of writes decide where a document stands
    order = np.lexsort(vectors[:, :_ORDERING].T)
    vectors, computed = vectors[order], computed[order]
    mean, basis = layout.fit(vectors)
    # half precision as in the stored map, so that computing and placing agree
    points = _projected(vectors, Space(mean, basis, _NO_POINTS, computed)).astype(np.float16)
    space = Space(mean, basis, points.astype(np.float32), computed)
    graph = layout.neighbours(space.points, lambda share: progress("layout", share / 3))
    found = layout.positions(
        space.points, graph, lambda share: progress("layout", (1 + 2 * share) / 3)
    )
    progress("topics", 0)
    positions = np.full((len(ids), 2), np.nan, dtype=np.float32)
    topic = np.full(len(ids), -1, dtype=np.int32)
    positions[computed], topic[computed] = found, layout.topics(found, space.points, graph)
    if len(computed) < len(ids):
        await _place_others(index, ids, space, positions, topic, progress)
    topics = await _named(index, ids, space, topic, progress)
    known = ~np.isnan(positions[:, 0])
    moved = np.cumsum(known, dtype=np.int32) - 1
    space = Space(mean, basis, space.points, moved[computed].astype(np.int32))
    return stored.row(
        index.table.name,
        [name for name, held in zip(ids, known, strict=True) if held],
        updated[known],
        positions[known],
        topic[known],
        topics,
        space,
    )


_NO_POINTS = np.zeros((0, 0), dtype=np.float32)


async def _ids(index: Index) -> tuple[list[str], NDArray[np.int64]]:
    """The ids of all documents in ascending order, and when each was written."""
    found = await index.table.query().where(LIVE).select(["id", "updated"]).to_arrow()
    rows = sorted(zip(texts(found["id"]), found["updated"].to_pylist(), strict=True))
    return [name for name, _ in rows], np.array([time for _, time in rows], dtype=np.int64)


def _drawn(ids: Sequence[str]) -> Integers:
    """Places of the documents to compute, in ascending order: all, or always the same sample."""
    if len(ids) <= MOST_COMPUTED:
        return np.arange(len(ids), dtype=np.int32)
    hashes = np.array([zlib.crc32(name.encode("utf-8", "replace")) for name in ids])
    return np.sort(np.argsort(hashes, kind="stable")[:MOST_COMPUTED]).astype(np.int32)


async def _vectors(
    index: Index, ids: Sequence[str], wanted: Integers, progress: Progress
) -> tuple[Halves, NDArray[np.bool_]]:
    """Vectors of some documents, and which of these documents have one."""
    row_of = {ids[place]: row for row, place in enumerate(wanted)}
    vectors = np.zeros((len(wanted), index.schema.field("vector").type.list_size), np.float16)
    there = np.zeros(len(wanted), dtype=np.bool_)
    read = 0
    async for names, part in _batches(index):
        pairs = [(row_of[name], at) for at, name in enumerate(names) if name in row_of]
        rows, places = [row for row, _ in pairs], [at for _, at in pairs]
        vectors[rows], there[rows] = part[places], True
        read += len(names)
        progress("reading", min(1.0, read / max(1, len(ids))))
    return vectors[there], there


async def _batches(index: Index) -> AsyncIterator[tuple[list[str], Floats]]:
    """Ids and vectors of all sound documents, some at a time."""
    query = index.table.query().where(LIVE).select(checksums.columns(Part.VECTOR))
    async for batch in await query.to_batches(max_batch_length=_BATCH):
        sound = await index.sound(pa.Table.from_batches([batch]), Part.VECTOR)
        if sound.num_rows:
            yield texts(sound["id"]), vector_matrix(sound)


def _projected(vectors: Halves, space: Space) -> Floats:
    parts = [
        space.project(vectors[start : start + _BATCH].astype(np.float32))
        for start in range(0, len(vectors), _BATCH)
    ]
    return np.concatenate([np.zeros((0, space.basis.shape[1]), np.float32), *parts])


async def _place_others(
    index: Index,
    ids: Sequence[str],
    space: Space,
    positions: Floats,
    topic: Integers,
    progress: Progress,
) -> None:
    """Place the documents whose positions are not computed."""
    row_of = {name: row for row, name in enumerate(ids) if np.isnan(positions[row, 0])}
    done = 0
    held, of = positions.copy(), topic.copy()
    async for names, part in _batches(index):
        pairs = [(row_of[name], at) for at, name in enumerate(names) if name in row_of]
        rows = [row for row, _ in pairs]
        points = space.project(part[[at for _, at in pairs]])
        positions[rows], topic[rows] = place(points, space, held, of)
        done += len(rows)
        progress("placing", done / len(row_of))


async def _named(
    index: Index, ids: Sequence[str], space: Space, topic: Integers, progress: Progress
) -> list[Topic]:
    """The topics with the words of the documents in their middle."""
    of = topic[space.places]
    number = int(topic.max(initial=-1)) + 1
    members: list[list[str]] = []
    for one in range(number):
        rows = np.flatnonzero(of == one)
        points = space.points[rows]
        far = np.square(points - points.mean(axis=0)).sum(axis=1)
        nearest = rows[np.argsort(far, kind="stable")[:NAMING]]
        members.append([ids[space.places[row]] for row in nearest])
    counts: list[Counter[str]] = []
    for done, names in enumerate(members):
        counts.append(await _counted(index, names))
        progress("topics", done / number)
    words = naming.names(counts, [len(names) for names in members])
    return [Topic(own, names[:EXAMPLES]) for own, names in zip(words, members, strict=True)]


async def _counted(index: Index, ids: Sequence[str]) -> Counter[str]:
    """In how many of some documents each word is."""
    found: Counter[str] = Counter()
    async for read in index.contents(ids, Part.TEXT):
        for text in texts(read["text"]):
            found.update(naming.counted(text))
    return found
