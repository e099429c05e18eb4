"""The documents inside an area of a map, as a condition for searches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from features.maps.current import Current, CurrentMaps
from service import executors
from service.errors import ConflictError, InvalidError
from service.index.documents import Index
from service.index.maps import Floats, Maps
from service.index.query.filters import Where, identified

# LanceDB compares each document with a list of ids: a search with 20,000 takes some 0.2 s longer
MOST_DOCUMENTS = 20_000
# conditions that a process remembers, of some MB each
_KEPT = 8


@dataclass(frozen=True, slots=True)
class Area:
    """A polygon on a map.

    Attributes:
        map: version of the map.
        corners: x and y of each.
    """

    map: str
    corners: tuple[tuple[float, float], ...]


class Areas:
    """The conditions of areas; remembers the latest ones until their index changes.

    Args:
        current: the documents on the maps.
    """

    def __init__(self, current: CurrentMaps) -> None:
        self._current = current
        self._known: LRUCache[tuple[str, int, Area], Where] = LRUCache(_KEPT)

    async def where(self, maps: Maps, index: Index, area: Area) -> Where:
        """The condition that a document is inside.

        Args:
            area: on its map.

        Raises:
            ConflictError: the index has another map, or none.
            InvalidError: too many documents are inside.
        """
        key = (index.table.name, await index.table.version(), area)
        # a new map leaves the version of the index as it is
        if key in self._known and await maps.version(index.table.name) == area.map:
            return self._known[key]
        current = await self._current.get(maps, index)
        if current is None or current.map.version != area.map:
            raise ConflictError(
                "area: the index has another map now, or none: GET /indexes/{name}/map has the "
                "present map and its version"
            )
        made = await executors.STORE.run(_where, current, area)
        # otherwise the next call places further documents
        if not current.growing:
            self._known[key] = made
        return made


def _where(current: Current, area: Area) -> Where:
    places = np.flatnonzero(inside(current.positions, area))
    if len(places) > MOST_DOCUMENTS:
        raise InvalidError(
            f"area: it has {len(places):,} documents, the limit is {MOST_DOCUMENTS:,}: give a "
            "smaller area",
            "area",
        )
    # no id is empty
    return identified([current.ids[place] for place in places] or [""])


def inside(positions: Floats, area: Area) -> NDArray[np.bool_]:
    """Which positions are inside: a ray from each crosses an odd number of sides.

    Args:
        positions: ``[n, 2]``.
        area: may cross itself.
    """
    x, y = positions.astype(np.float64).T
    found = np.zeros(len(positions), dtype=np.bool_)
    last = (area.corners[-1], *area.corners[:-1])
    # a horizontal side is never crossed, though its slope is infinite
    with np.errstate(divide="ignore", invalid="ignore"):
        for (x1, y1), (x2, y2) in zip(area.corners, last, strict=True):
            right = np.float64(x2 - x1) * (y - y1) / np.float64(y2 - y1) + x1
            found ^= ((y1 > y) != (y2 > y)) & (x < right)
    return found
