"""Labels of the documents on a map by a classifier."""

from __future__ import annotations

import numpy as np
import pytest

from docsplit.heads.network import Kind, Network
from features.maps import labels as labelling
from features.maps.current import Current
from features.maps.labels import NONE, Labels, MapLabels
from tests.index.test_maps import DIMENSIONS, EACH, GROUPS, Place, document, scenario

NAMES = list(GROUPS)


def network(kind: Kind = "softmax") -> Network:
    """Gives each group its own output; with several labels, no document of chess has one."""
    weights = 20 * np.eye(DIMENSIONS, len(NAMES), dtype=np.float32)
    bias = np.full(len(NAMES), -10 if kind == "sigmoid" else 0, dtype=np.float32)
    if kind == "sigmoid":
        weights[:, NAMES.index("chess")] = 0
    return Network((weights,), (bias,), kind=kind)


async def mapped(place: Place) -> Current:
    """The present documents on the map."""
    current = await place.current()
    assert current is not None
    return current


async def asked(
    known: MapLabels, current: Current, training: str = "t", kind: Kind = "softmax"
) -> Labels:
    return await known.get(current, np.arange(len(current.ids)), training, network(kind))


def groups(current: Current, found: Labels) -> dict[str, set[int]]:
    """The outputs of each group's documents."""
    made: dict[str, set[int]] = {}
    for name, output in zip(current.ids, found.outputs.tolist(), strict=True):
        made.setdefault(name.split("-")[0], set()).add(output)
    return made


@scenario
async def test_each_document_has_its_most_probable_label(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    current, known = await mapped(place), MapLabels()
    found = await asked(known, current)
    assert groups(current, found) == {name: {NAMES.index(name)} for name in NAMES}
    assert found.pending == 0
    assert (found.scores > 0.9).all()
    # another training of the same name has other labels
    found = await asked(known, current, "another", "sigmoid")
    assert groups(current, found) == {"stars": {0}, "bread": {1}, "chess": {NONE}}

    # a changed document gets its label again, and only then; a damaged one has none
    index = await place.indexes.open("x")
    moved = np.eye(DIMENSIONS)[NAMES.index("bread")]
    await place.put(document("stars-03", 3, moved))
    await index.table.update({"digest": "'damaged'"}, where="id = 'chess-01'")
    stale = await asked(known, current)
    assert stale.outputs[current.ids.index("stars-03")] == NAMES.index("stars")
    current = await mapped(place)
    found = await asked(known, current)
    assert found.outputs[current.ids.index("stars-03")] == NAMES.index("bread")
    assert found.outputs[current.ids.index("chess-01")] == NAMES.index("chess")
    fresh = await asked(MapLabels(), current)
    assert fresh.outputs[current.ids.index("chess-01")] == NONE
    assert fresh.pending == 0
    assert (fresh.outputs == found.outputs).sum() == 3 * EACH - 1


@scenario
async def test_one_call_reads_a_bounded_number_of_vectors(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    current, known = await mapped(place), MapLabels()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelling, "_READ", 20)
        patch.setattr(labelling, "MOST_SCORES", 40 * len(NAMES))
        found = [await asked(known, current) for _ in range(3)]
        assert [one.pending for one in found] == [50, 10, 0]
        assert (found[0].outputs == NONE).sum() == 50
        whole = await asked(MapLabels(), current)
    assert whole.pending == 50
    assert np.array_equal(found[2].outputs, (await asked(MapLabels(), current)).outputs)
    # rows that moved since the map was read wait for the next reading of the map
    await place.put(*(document(f"stars-{at:02}", at) for at in range(5)))
    known = MapLabels()
    assert (await asked(known, current)).pending == 5
    assert (await asked(known, await mapped(place))).pending == 0


@scenario
async def test_a_process_remembers_a_bounded_number_of_labels(place: Place) -> None:
    await place.indexes.maps.put(await place.made())
    current, known = await mapped(place), MapLabels()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelling, "_KEPT_DOCUMENTS", 60)
        for first in (0, 40):
            places = np.arange(first, first + 40)
            found = await known.get(current, places, "t", network())
            assert found.pending == 0
        [held] = known._known.values()
        assert len(held.hashes) == 40
