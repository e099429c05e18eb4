"""Indexes that requests read: every read of one request sees the same documents."""

from __future__ import annotations

from tests.index.processes import Replicas, record, run, text


@run
async def test_a_still_index_keeps_its_documents(replicas: Replicas) -> None:
    here, there = await replicas.open("a"), await replicas.open("a")
    await here.create("x", {})
    await (await here.open("x")).put([record("one", "first")])
    still, moving = await there.open("x", still=True), await there.open("x")
    await (await here.open("x")).put([record("one", "second"), record("two")])
    assert (await text(still, "one"), await still.count()) == ("first", 1)
    assert (await text(moving, "one"), await moving.count()) == ("second", 2)
    # the next request sees all
    later = await there.open("x", still=True)
    assert (await text(later, "one"), await later.count()) == ("second", 2)
