"""Pages and headings of documents from files: stored, kept by every way to write, and answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.index import documents, maintenance
from service.index.commits import Upsert, write
from service.index.documents import Index
from service.index.indexes import Indexes
from service.index.query.passages import Form, search
from service.index.query.reading import Query
from service.index.rows import derived, schema
from service.index.rows.derived import MOST, TITLE_CHARACTERS, Outline
from tests.index.processes import Replicas, copy, record, run

TEXT = "Harbour\n\nBoats carry grain. Boats return empty.\n\nSchool\n\nPupils read and write."
HELD = Outline((0, TEXT.index("School")), ((0, "Harbour"), (TEXT.index("School"), "School")))
DOCUMENT = replace(record("d", TEXT), outline=HELD)
# words that occur in one document only weigh most
OTHERS = [record("x", "A violin is tuned in fifths."), record("y", "Snow falls on the hills.")]


async def places(index: Index, words: str) -> tuple[int | None, str | None]:
    """Page and heading of the best passage for some words."""
    vector = np.array([1, 0, 0, 0], dtype=np.float32)
    query = Query(vector, words)
    [found] = await search(index, query, "words", Form(1, 1, 25), None)
    [passage] = found.passages
    assert words in passage.snippet.text
    return passage.page, passage.heading


def test_an_outline_knows_the_page_and_the_heading_of_a_character() -> None:
    held = Outline((0, 10, 10, 20), ((2, "One"), (15, "Two")))
    assert [held.page(place) for place in (0, 9, 10, 19, 20, 99)] == [1, 1, 3, 3, 4, 4]
    assert [held.heading(place) for place in (0, 2, 14, 15)] == [None, "One", "One", "Two"]
    assert (Outline((), ()).page(3), Outline((), ()).heading(3)) == (None, None)


def test_an_outline_is_stored_in_few_bytes_and_bounded() -> None:
    held = derived.outline(range(0, 9_000_000, 300), [(n, f"H{n}" * 500) for n in (5, 3)])
    assert held is not None
    assert (len(held.pages), held.headings[0][0]) == (MOST, 3)
    assert len(held.headings[0][1]) == TITLE_CHARACTERS
    stored = derived.sealed_outline(held, "digest.sums")
    assert stored is not None
    assert len(stored) < MOST
    assert derived.opened_outline(stored, "digest.others") == held
    assert derived.opened_outline(stored, "other.sums") is None
    assert derived.opened_outline(stored[:-1], "digest.sums") is None
    assert derived.outline([], []) is None


@run
async def test_passages_say_page_and_heading(replicas: Replicas) -> None:
    a, _ = await replicas.pair()
    await a.put([DOCUMENT, *OTHERS])
    assert await places(a, "Boats carry") == (1, "Harbour")
    assert await places(a, "Pupils read") == (2, "School")
    # damage hides the outline and no document
    await a.table.update({derived.OUTLINE: b"damaged"}, where="id = 'd'")
    assert await places(a, "Pupils read") == (None, None)


@run
async def test_every_way_to_write_keeps_the_outline(replicas: Replicas) -> None:
    a, b = await replicas.pair()
    await a.put([DOCUMENT])
    held, _ = await documents.whole(a, "d")
    assert held.outline == HELD
    # as PATCH does
    await write(a, [Upsert(await a.rows([replace(held, title="A title")]))])
    assert (await documents.whole(a, "d"))[0].outline == HELD
    assert await copy(b, a) == 1
    assert (await documents.whole(b, "d"))[0].outline == HELD
    # an upsert without an outline removes it
    await a.put([record("d", TEXT)])
    assert (await documents.whole(a, "d"))[0].outline is None


def test_a_table_of_an_earlier_version_gets_the_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @run
    async def scenario(replicas: Replicas) -> None:
        a = await former(replicas, monkeypatch)
        index = await a.open("x")
        await index.put([DOCUMENT, *OTHERS])
        assert await places(index, "Pupils read") == (None, None)
        assert (await documents.digests(index, ["d"]))["d"][1] is None
        assert not await maintenance.complete(index)
        rows = await index.rows([replace(DOCUMENT, id="e")])
        assert await maintenance.add(index)
        upgraded = await a.open("x")
        assert await maintenance.complete(upgraded)
        # a request that began before
        await write(upgraded, [Upsert(rows)])
        assert (await documents.digests(upgraded, ["e"]))["e"][1] is None
        await upgraded.put([DOCUMENT])
        assert (await documents.digests(upgraded, ["d"]))["d"][1] == HELD

    scenario(tmp_path)


async def former(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> Indexes:
    """An index without the column."""
    a = await replicas.open("a")
    create = schema.create

    def older(*given: Any) -> Any:
        made = create(*given)
        return made.remove(made.get_field_index(derived.OUTLINE))

    with monkeypatch.context() as patch:
        patch.setattr(schema, "create", older)
        await a.create("x", {})
    return a
