"""The map of the documents that an index has now.

A document that was written after the map was made gets the middle of its nearest neighbours on the
map and the topic of most of them. The neighbours are always among the documents whose positions
were computed, so a document gets the same place whatever else was added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from lancedb.expr import col, lit
from numpy.typing import NDArray

from service import executors
from service.errors import InvalidError
from service.index.documents import LIVE, Index
from service.index.maps import Floats, Integers, Map, Maps, Space
from service.index.rows import checksums
from service.index.rows.checksums import Part, texts
from service.index.rows.fields import column_name
from service.index.rows.vectors import vector_matrix

NEIGHBOURS = 8
# new documents that one call places, and how many of them it reads at a time
MOST_NEW = 2000
_PAGE = 256
# maps whose new documents a process remembers, and new documents of each
_KEPT_MAPS = 16
_KEPT_NEW = 20_000
_KINDS = ("string", "integer", "boolean")


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a document that is new to the map stands.

    Attributes:
        updated: when the document was written, microseconds since the epoch.
    """

    updated: int
    position: tuple[float, float]
    topic: int


@dataclass(frozen=True, slots=True)
class Current:
    """The documents of an index on its map.

    Attributes:
        ids: in ascending order.
        positions: ``[n, 2]``.
        topic: of each document, a position in ``map.topics`` or -1, ``[n]``.
        updated: when each document was written, microseconds since the epoch, ``[n]``.
        rows: position of each document in the table (``_rowid``) when it was read, ``[n]``.
        placed: how many of them are new to the map.
        unplaced: further new documents, which have no place yet.
        growing: whether a later call may place some of these.
        values: of the field that was asked for, of each document; None without a field.
    """

    index: Index
    map: Map
    ids: list[str]
    positions: Floats
    topic: Integers
    updated: NDArray[np.int64]
    rows: NDArray[np.int64]
    placed: int
    unplaced: int
    growing: bool
    values: list[Any] | None

    @property
    def stale(self) -> float:
        """The share of the index's documents that are new to the map, 0 to 1."""
        total = len(self.ids) + self.unplaced
        return (self.placed + self.unplaced) / total if total else 0.0


class CurrentMaps:
    """The current maps of all indexes; remembers where it placed new documents."""

    def __init__(self) -> None:
        self._placed: LRUCache[str, dict[str, Placed]] = LRUCache(_KEPT_MAPS)

    async def get(self, maps: Maps, index: Index, field: str | None = None) -> Current | None:
        """The documents of an index on its map; None without a map.

        It places up to ``MOST_NEW`` new documents; later calls place further ones, until the
        process remembers as many as it may.

        Args:
            field: whose values to read, too.

        Raises:
            InvalidError: the index has no such field, or it has no single values to compare.
        """
        if field is not None:
            _check(index, field)
        held = await maps.get(index.table.name)
        if held is None:
            return None
        columns = ["id", "updated", *([column_name(field)] if field else [])]
        query = index.table.query().where(LIVE).select(columns).with_row_id()
        found = await query.to_arrow()
        known = self._placed.setdefault(held.version, {})
        # other calls change it meanwhile
        snapshot = dict(known)
        new, gone = await executors.STORE.run(_new, held, found, snapshot)
        for name in gone:
            if known.get(name) is snapshot[name]:
                del known[name]
        placed = 0
        if wanted := new[: max(0, min(MOST_NEW, _KEPT_NEW - len(known)))]:
            space = await maps.space(index.table.name, held.version)
            if space is not None and len(space.points):
                for start in range(0, len(wanted), _PAGE):
                    part = wanted[start : start + _PAGE]
                    made = await _placed(index, held, space, part)
                    placed += len(made)
                    known.update(made)
        # damaged documents get no place
        growing = placed > 0 and len(known) < _KEPT_NEW
        return await executors.STORE.run(_current, index, held, found, known, growing, field)


def _check(index: Index, field: str) -> None:
    known = sorted(name for name, kind in index.identity.fields.items() if kind in _KINDS)
    if field not in known:
        raise InvalidError(
            "field: give a declared field of the types string, integer and boolean; "
            f"this index has: {', '.join(known) or 'none'}",
            "field",
        )


def _new(held: Map, found: pa.Table, known: dict[str, Placed]) -> tuple[list[str], list[str]]:
    """Ids of the documents without a place, in ascending order, and of places of former ones."""
    there = dict(zip(held.ids, held.updated.tolist(), strict=True))
    there |= {name: one.updated for name, one in known.items()}
    rows = dict(zip(texts(found["id"]), found["updated"].to_pylist(), strict=True))
    new = sorted(name for name, updated in rows.items() if there.get(name) != updated)
    return new, [name for name, one in known.items() if rows.get(name) != one.updated]


async def _placed(index: Index, held: Map, space: Space, ids: Sequence[str]) -> dict[str, Placed]:
    columns = [*checksums.columns(Part.VECTOR), "updated"]
    read = await index.select(col("id").isin([lit(name) for name in ids]), columns, len(ids))
    sound = await index.sound(read, Part.VECTOR)
    if not sound.num_rows:
        return {}
    names, updated = texts(sound["id"]), sound["updated"].to_pylist()
    where = await executors.STORE.run(
        place, space.project(vector_matrix(sound)), space, held.positions, held.topic
    )
    return {
        name: Placed(time, (float(x), float(y)), int(topic))
        for name, time, (x, y), topic in zip(names, updated, *where, strict=True)
    }


def place(
    points: Floats, space: Space, positions: Floats, topic: Integers
) -> tuple[Floats, Integers]:
    """Positions and topics of further documents, by their nearest neighbours.

    Args:
        points: of the documents, ``[n, components]``.
        space: has the neighbours.
        positions: of all documents of the map, ``[documents, 2]``.
        topic: of all documents of the map, ``[documents]``.

    Returns:
        ``[n, 2]`` and ``[n]``.
    """
    number = min(NEIGHBOURS, len(space.points))
    squares = np.square(space.points).sum(axis=1)
    far = squares - 2 * points @ space.points.T
    near = space.places[np.argpartition(far, number - 1, axis=1)[:, :number]]
    found = np.array([_most(row) for row in topic[near]], dtype=np.int32)
    # the middle of all neighbours may lie between two groups
    same = topic[near] == found[:, None]
    weights = same / same.sum(axis=1, keepdims=True)
    return np.einsum("nk,nkd->nd", weights, positions[near]).astype(np.float32), found


def _most(topics: Integers) -> int:
    """The most frequent topic; of equally frequent ones the first."""
    values, counts = np.unique(topics, return_counts=True)
    return int(values[counts.argmax()])


def _current(
    index: Index,
    held: Map,
    found: pa.Table,
    known: dict[str, Placed],
    growing: bool,
    field: str | None,
) -> Current:
    place_of = {name: place for place, name in enumerate(held.ids)}
    times = held.updated.tolist()
    names, updated = texts(found["id"]), found["updated"].to_pylist()
    ids: list[str] = []
    places: list[int] = []
    new: dict[int, Placed] = {}
    rows: list[int] = []
    for row in sorted(range(len(names)), key=names.__getitem__):
        name = names[row]
        place = place_of.get(name, -1)
        one = known.get(name)
        if place < 0 or times[place] != updated[row]:
            if one is None or one.updated != updated[row]:
                continue
            new[len(ids)] = one
        ids.append(name)
        places.append(place)
        rows.append(row)
    positions: Floats = held.positions[places]
    topic: Integers = held.topic[places]
    for at, one in new.items():
        positions[at], topic[at] = one.position, one.topic
    values = found[column_name(field)].to_pylist() if field else None
    return Current(
        index,
        held,
        ids,
        positions,
        topic,
        np.array(updated, dtype=np.int64)[rows],
        np.array(found["_rowid"], dtype=np.int64)[rows],
        len(new),
        len(names) - len(ids),
        growing and len(ids) < len(names),
        None if values is None else [values[row] for row in rows],
    )
