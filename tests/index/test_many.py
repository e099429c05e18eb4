"""Many documents in one request: get, delete by ids and by filter."""

from typing import Any

import pytest

from service.index.commits import Writer
from service.index.documents import Index
from service.index.query import listing
from service.index.query.filters import live
from tests.conftest import Server
from tests.index.conftest import call, count, upsert
from tests.index.processes import Replicas, record, run, text


def get(server: Server, index: str, status: int = 200, **body: Any) -> Any:
    return call(server, "POST", f"/indexes/{index}/documents/get", body, status=status)


def delete(server: Server, index: str, status: int = 200, **body: Any) -> Any:
    return call(server, "POST", f"/indexes/{index}/documents/delete", body, status=status)


def filled(server: Server, index: str) -> list[str]:
    names = [f"d{number}" for number in range(6)]
    documents = [
        {"id": name, "text": f"Text of {name}.", "title": name, "metadata": {"year": 2000 + place}}
        for place, name in enumerate(names)
    ]
    upsert(server, index, *documents)
    return names


def test_get_answers_in_the_order_of_the_ids(server: Server, index: str) -> None:
    names = filled(server, index)
    found = get(server, index, ids=[names[3], "none", names[1], names[3]])
    assert (found["missing"], found["damaged"], found["remaining"]) == (["none"], [], [])
    for document, name in zip(found["documents"], [names[3], names[1]], strict=True):
        one = call(server, "GET", f"/indexes/{index}/documents/{name}")
        assert document == {key: value for key, value in one.items() if key != "links"}
    [head] = get(server, index, ids=names[:1], text=False)["documents"]
    assert set(head) == {"id", "title", "metadata", "version"}


@run
async def test_get_reads_no_more_than_it_may(replicas: Replicas) -> None:
    a, _ = await replicas.pair()
    await a.put([record("long", "x" * 900), record("b", "y" * 50), record("c", "z" * 50)])
    ids = ["b", "c", "long"]
    whole = await listing.read(a, ids, texts=True)
    assert [head.id for head, _ in whole.documents] == ids
    part = await listing.read(a, ids, texts=True, most=500)
    assert ([head.id for head, _ in part.documents], part.remaining) == (["b", "c"], ["long"])
    # a document that is longer than the whole answer still arrives
    rest = await listing.read(a, part.remaining, texts=True, most=500)
    assert [read for _, read in rest.documents] == ["x" * 900]
    heads = await listing.read(a, ids, texts=False, most=500)
    assert len(heads.documents) == 3


def test_delete_by_ids(server: Server, index: str) -> None:
    names = filled(server, index)
    assert delete(server, index, ids=[*names[:2], "none"], dry_run=True) == {"deleted": 2}
    assert count(server, index) == 6
    assert delete(server, index, ids=[*names[:2], "none"]) == {"deleted": 2}
    assert delete(server, index, ids=names[:2]) == {"deleted": 0}
    assert get(server, index, ids=names)["missing"] == names[:2]


def test_delete_by_filter(server: Server, index: str) -> None:
    names = filled(server, index)
    late = {"field": "year", "gte": 2004}
    assert delete(server, index, filter=late, dry_run=True) == {"deleted": 2}
    assert count(server, index) == 6
    assert delete(server, index, filter=late) == {"deleted": 2}
    assert delete(server, index, filter=late) == {"deleted": 0}
    assert get(server, index, ids=names)["missing"] == names[4:]


@pytest.mark.parametrize("body", [{}, {"ids": ["a"], "filter": {"field": "year", "eq": 1}}])
def test_delete_needs_ids_or_a_filter(server: Server, empty: str, body: dict[str, Any]) -> None:
    assert "either ids or filter" in delete(server, empty, status=422, **body)["error"]
    assert "ids" in get(server, empty, status=422, ids=["x"] * 1001)["error"]


@run
async def test_batches_hold_every_match_once(replicas: Replicas) -> None:
    a, _ = await replicas.pair()
    names = [f"d{number}" for number in range(listing.BATCH + 7)]
    for start in (0, 2000, 4000):
        await a.put([record(name) for name in names[start : start + 2000]])
    found = [batch async for batch in listing.versions_matching(a, live(None))]
    assert [len(batch) for batch in found] == [listing.BATCH, 7]
    assert sorted(name for batch in found for name in batch) == sorted(names)


@run
async def test_a_write_in_between_stays_and_other_generations_follow(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    for index in (a, b):
        await index.put([record("kept"), record("gone")])
    seen = await listing.versions(a, ["kept", "gone"])
    await a.put([record("kept", "a newer text")])
    indexes = await replicas.open("a")
    writer = Writer(indexes, "x", lambda _: None)
    deleted = await writer.delete_seen(a.identity.uid, seen)
    assert set(deleted) == {"gone"}
    assert (await text(a, "kept"), await text(a, "gone")) == ("a newer text", None)
    assert await _held(b) == {"kept"}
    # the control: with the version of the newer text it is deleted
    assert set(await writer.delete_seen(a.identity.uid, await listing.versions(a, ["kept"]))) == {
        "kept"
    }


async def _held(index: Index) -> set[str]:
    return set(await listing.versions(index, ["kept", "gone"]))
