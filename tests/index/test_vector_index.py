"""Searches in a table with an approximate index over its vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from service.index import maintenance
from service.index.query import search
from tests.integrity import stores

DOCUMENTS = 300


@pytest.mark.parametrize("limit", [10, 100, 250])
def test_every_mode_gives_as_many_hits_as_without_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(maintenance, "VECTOR_INDEX_ROWS", DOCUMENTS)

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {})
        index = await indexes.open("x")
        names = [f"d{number}" for number in range(DOCUMENTS)]
        await index.put([stores.record(name) for name in names])
        query = await search.stored(index, "d7")
        query = replace(query, exclude=frozenset(names[10:30]))
        searches = (search.cosine, search.hybrid)
        before = [await run(index, query, limit, None) for run in searches]
        await maintenance.optimize(index.table)
        built = {one.columns[0] for one in await index.table.list_indices()}
        assert "vector" in built
        for run, exact in zip(searches, before, strict=True):
            found = await run(index, query, limit, None)
            assert len(found) == len(exact) == limit
            assert not {hit.id for hit in found} & {"d7", *names[10:30]}
            shared = {hit.id for hit in found} & {hit.id for hit in exact}
            assert len(shared) > 0.9 * limit

    stores.run(scenario())
