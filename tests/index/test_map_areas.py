"""Areas of a map as conditions of searches."""

from __future__ import annotations

import json

import numpy as np
import pytest

from features.maps import areas as conditions
from features.maps import current as currents
from features.maps.areas import Area, Areas, inside
from service.errors import ConflictError, InvalidError
from service.index import sql
from service.index.query import search
from service.index.query.filters import Where, both
from service.index.query.reading import Query
from tests.index.test_maps import DIMENSIONS, EACH, GROUPS, Place, document, scenario


def test_a_place_is_inside_if_a_ray_crosses_the_line_an_odd_number_of_times() -> None:
    x, y = np.meshgrid(np.arange(7) + 0.5, np.arange(7) + 0.5)
    places = np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)
    square = Area("m", ((1, 1), (3, 1), (3, 4), (1, 4)))
    found = places[inside(places, square)]
    assert {tuple(place) for place in found.tolist()} == {
        (1.5, 1.5), (2.5, 1.5), (1.5, 2.5), (2.5, 2.5), (1.5, 3.5), (2.5, 3.5),
    }  # fmt: skip
    turned = Area("m", square.corners[::-1])
    assert np.array_equal(inside(places, turned), inside(places, square))
    # the middle of a star that crosses itself is outside
    angles = 2 * np.pi * 2 * np.arange(5) / 5
    star = Area("m", tuple(zip(np.cos(angles).tolist(), np.sin(angles).tolist(), strict=True)))
    places = np.array([[0, 0], [0.9, 0], [5, 0]], dtype=np.float32)
    assert inside(places, star).tolist() == [False, True, False]


async def around(place: Place, group: str) -> Area:
    """A box around the documents of one group."""
    current = await place.current()
    assert current is not None
    own = [at for at, name in enumerate(current.ids) if name.startswith(group)]
    (left, low), (right, high) = (
        current.positions[own].min(axis=0) - 0.01,
        current.positions[own].max(axis=0) + 0.01,
    )
    corners = ((left, low), (right, low), (right, high), (left, high))
    return Area(current.map.version, tuple((float(x), float(y)) for x, y in corners))


async def found(place: Place, areas: Areas, area: Area) -> set[str]:
    """The documents that a search in an area finds."""
    index = await place.indexes.open("x")
    where = await areas.where(place.indexes.maps, index, area)
    query = Query(np.ones(DIMENSIONS, dtype=np.float32), "number text of")
    nearest = await search.cosine(index, query, 200, where)
    worded = await search.words(index, query, 200, where)
    assert {hit.id for hit in nearest} == {hit.id for hit in worded}
    assert json.loads(nearest[0].metadata or "")["n"] >= 0
    return {hit.id for hit in nearest}


@scenario
async def test_a_search_finds_only_documents_inside(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    areas = Areas(place.maps)
    area = await around(place, "bread")
    bread = {f"bread-{at:02}" for at in range(EACH)}
    assert await found(place, areas, area) == bread
    assert await found(place, areas, await around(place, "chess")) != bread
    # documents that come later, and those that leave
    moved = np.eye(DIMENSIONS)[list(GROUPS).index("stars")]
    await place.put(document("bread-99", 99), document("bread-05", 5, moved))
    index = await place.indexes.open("x")
    await index.tombstone({"bread-07": 2**60})
    assert await found(place, areas, area) == bread - {"bread-05", "bread-07"} | {"bread-99"}
    # with another condition, and nothing inside
    where = await areas.where(place.indexes.maps, index, area)
    few = both(where, Where(sql.compare("id", "<", "bread-03"), None))
    query = Query(np.ones(DIMENSIONS, dtype=np.float32), "")
    assert len(await search.cosine(index, query, 200, few)) == 3
    nowhere = Area(area.map, ((1e6, 1e6), (2e6, 1e6), (1e6, 2e6)))
    where = await areas.where(place.indexes.maps, index, nowhere)
    assert await search.cosine(index, query, 200, where) == []


@scenario
async def test_an_area_of_another_map_or_of_too_many_documents_is_refused(place: Place) -> None:
    index, areas = await place.indexes.open("x"), Areas(place.maps)
    everything = ((-1e6, -1e6), (1e6, -1e6), (1e6, 1e6), (-1e6, 1e6))
    with pytest.raises(ConflictError, match="another map now, or none"):
        await areas.where(place.indexes.maps, index, Area("m", everything))
    await place.indexes.maps.put(await place.made())
    current = await place.current()
    assert current is not None
    with pytest.raises(ConflictError, match="another map now, or none"):
        await areas.where(place.indexes.maps, index, Area("m", everything))
    area = Area(current.map.version, everything)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "MOST_DOCUMENTS", 3 * EACH)
        await areas.where(place.indexes.maps, index, area)
        await place.put(document("bread-99", 99))
        with pytest.raises(InvalidError, match="91 documents, the limit is 90"):
            await areas.where(place.indexes.maps, index, area)


@scenario
async def test_an_area_of_the_former_map_is_refused_right_after_a_new_one(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    index, areas = await place.indexes.open("x"), Areas(place.maps)
    area = await around(place, "bread")
    await areas.where(place.indexes.maps, index, area)
    await place.indexes.maps.put(await place.made())
    with pytest.raises(ConflictError, match="another map now, or none"):
        await areas.where(place.indexes.maps, index, area)
    await areas.where(place.indexes.maps, index, await around(place, "bread"))


@scenario
async def test_a_condition_waits_for_the_places_of_new_documents(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    area, areas = await around(place, "bread"), Areas(place.maps)
    await place.put(*(document(f"bread-{at}", at) for at in (97, 98, 99)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(currents, "MOST_NEW", 2)
        numbers = [len(await found(place, areas, area)) for _ in range(2)]
    assert numbers == [EACH + 2, EACH + 3]


@scenario
async def test_a_condition_is_kept_when_no_further_document_gets_a_place(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    area, areas = await around(place, "bread"), Areas(place.maps)
    index = await place.indexes.open("x")
    await place.put(*(document(f"bread-{at}", at) for at in (96, 97, 98, 99)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(currents, "MOST_NEW", 2)
        patch.setattr(currents, "_KEPT_NEW", 3)
        made = [await areas.where(place.indexes.maps, index, area) for _ in range(4)]
        assert [one is made[-1] for one in made] == [False, True, True, True]
        assert await found(place, areas, area) >= {f"bread-{at}" for at in (96, 97, 98)}
        # the index changes
        await index.tombstone({"bread-96": 2**60})
        assert "bread-99" in await found(place, areas, area)


@scenario
async def test_a_damaged_document_does_not_make_each_search_read_all_ids(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    area, areas = await around(place, "bread"), Areas(place.maps)
    index = await place.indexes.open("x")
    await place.put(document("bread-98", 98), document("bread-99", 99))
    await index.table.update({"vector": [0.25] * DIMENSIONS}, where="id = 'bread-98'")
    made = [await areas.where(place.indexes.maps, index, area) for _ in range(3)]
    assert made[1] is made[2]
