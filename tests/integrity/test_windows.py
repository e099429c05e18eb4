"""Windows in tables of this and of earlier versions: searched, and never served when damaged."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from service.index import commits, maintenance, row_cache
from service.index.documents import SIZE_COLUMNS, Index, windows_of
from service.index.query import passages
from service.index.query.filters import Condition, compile_filter
from service.index.query.passages import Form, Found, part_of, search
from service.index.query.reading import Query
from service.index.rows.vectors import (
    window_blobs,
    windows_column,
    windows_searchable,
    windows_type,
)
from tests.integrity import stores
from tests.integrity.stored import make

FORM = Form(20, 3, 60)
MODES: tuple[Any, ...] = ("cosine", "words", "hybrid")


async def window_of(index: Index, name: str) -> Query:
    """A query that is exactly the second window of a document, which it does not name."""
    part = await part_of(index, name, stores.WINDOW, 2 * stores.WINDOW)
    return Query(part.vector, part.text)


def ids(found: list[Found]) -> list[str]:
    return [one.id for one in found]


@pytest.mark.parametrize(
    ("column", "value"),
    [("window_ends", "[1, 2]"), ("text", "'another'"), ("vector", str([0.35] * 8))],
)
async def test_damaged_rows_are_not_served(
    store: Path, tmp_path: Path, column: str, value: str
) -> None:
    root = stores.copy(store, tmp_path / "copy")

    index = await (await stores.open_indexes(root)).open("x")
    query = await window_of(index, "x-3")
    sound = {mode: ids(await search(index, query, mode, FORM, None)) for mode in MODES}
    await index.table.update(updates_sql={column: value}, where="id = 'x-3'")
    for mode in MODES:
        assert "x-3" in sound[mode]
        seen: list[int] = []
        index = Index(index.table, index.schema, index.identity, index.vocabulary, seen.append)
        found = ids(await search(index, query, mode, FORM, None))
        # damage can cost the row its place among candidates, which are not read
        assert seen or column == "text"
        assert set(found) == set(sound[mode]) - {"x-3"}


async def test_an_index_of_windows_follows_writes_and_deletions(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = stores.copy(store, tmp_path / "copy")
    monkeypatch.setattr(maintenance, "WINDOW_INDEX_WINDOWS", 4)

    indexes = await stores.open_indexes(root)
    index = await indexes.open("x")
    before = await search(index, await window_of(index, "x-3"), "cosine", FORM, None)
    assert before[0].id == "x-3"
    assert before[0].passages[0].cosine == pytest.approx(1, abs=1e-3)
    await maintenance.optimize(index.table)
    assert "windows" in [built.columns[0] for built in await index.table.list_indices()]
    after = await search(index, await window_of(index, "x-3"), "cosine", FORM, None)
    assert after == before

    query = await window_of(index, "x-4")
    await index.put([stores.record("later", stores.text_of("x-4"))])
    await commits.delete_everywhere(indexes, "x", index.identity.uid, ["x-4"])
    for _ in range(2):
        found = await search(index, query, "cosine", FORM, None)
        assert found[0].id == "later"
        assert "x-4" not in ids(found)
        await maintenance.optimize(index.table)


async def test_the_cosine_of_a_document_is_the_same_among_any_others(
    store: Path, tmp_path: Path
) -> None:
    root = stores.copy(store, tmp_path / "copy")

    index = await (await stores.open_indexes(root)).open("x")
    query = await window_of(index, "x-3")
    cosines: dict[str, set[float]] = {}
    for documents in range(1, 20):
        form = Form(documents, 3, 60)
        for one in await search(index, query, "cosine", form, None):
            cosines.setdefault(one.id, set()).add(one.cosine)
    assert len(cosines) > 10
    assert {len(found) for found in cosines.values()} == {1}


def extract(archive: str, folder: Path) -> None:
    with tarfile.open(Path(make.__file__).parent / f"{archive}.tar.gz") as packed:
        packed.extractall(folder, filter="data")


@pytest.mark.parametrize("mode", MODES)
async def test_a_row_that_moved_is_found_beside_one_that_contradicts_itself(
    tmp_path: Path, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract("0.1-plain", tmp_path)
    take, moved = row_cache.take, []

    async def later(*given: Any) -> pa.Table:
        """What a read finds after a compaction has moved its first row."""
        found = await take(*given)
        if given[2] == SIZE_COLUMNS:
            return found
        moved.append(found["id"][0].as_py())
        return found.slice(1)

    index = await (await stores.open_indexes(tmp_path)).open("papers")
    own = make.record(3)
    query = Query(own.encoding.windows[1], own.text)
    sound = ids(await search(index, query, mode, FORM, None))
    await index.table.update(updates_sql={"window_ends": "[1, 2, 3, 4, 5]"}, where="id = 'd5'")
    monkeypatch.setattr(passages, "take", later)
    found = ids(await search(index, query, mode, FORM, None))
    assert sorted(found) == sorted(set(sound) - {"d5"})
    assert set(moved) & set(found)


@pytest.mark.parametrize("mode", ["cosine", "words", "hybrid"])
@pytest.mark.parametrize("archive", ["0.1-plain", "0.1-checksums"])
async def test_a_damaged_row_of_an_earlier_version_is_left_out(
    tmp_path: Path, archive: str, mode: Any
) -> None:
    extract(archive, tmp_path)

    index = await (await stores.open_indexes(tmp_path)).open("papers")
    own = make.record(3)
    query = Query(own.encoding.windows[1], own.text)
    sound = ids(await search(index, query, mode, FORM, None))
    assert "d5" in sound
    # more windows than the row has vectors
    await index.table.update(updates_sql={"window_ends": "[1, 2, 3, 4, 5]"}, where="id = 'd5'")
    found = ids(await search(index, query, mode, FORM, None))
    assert sorted(found) == sorted(set(sound) - {"d5"})


@pytest.mark.parametrize("archive", ["0.1-plain", "0.1-checksums"])
async def test_an_index_of_an_earlier_version_is_searched(tmp_path: Path, archive: str) -> None:
    extract(archive, tmp_path)

    index = await (await stores.open_indexes(tmp_path)).open("papers")
    assert not windows_searchable(index.schema)
    own = make.record(3)
    query = Query(own.encoding.windows[1], own.text)
    drafts = Condition.model_validate({"field": "draft", "eq": False})
    where = compile_filter(drafts, index.identity.fields)
    for mode in ("cosine", "hybrid"):
        found = await search(index, query, mode, FORM, where)
        assert sorted(ids(found)) == ["d1", "d3", "d5"]
        assert found[0].id == "d3"
        best = found[0].passages[0]
        assert (best.start, best.end) == (20, len(own.text))
        assert best.cosine == pytest.approx(1, abs=1e-3)
    await index.put([make.record(9)])
    await maintenance.optimize(index.table)
    windows = await windows_of(index, "d9")
    assert np.array_equal(windows.vectors, make.record(9).encoding.windows.astype("<f2"))


def test_both_forms_of_the_column_have_the_same_bytes() -> None:
    made = [stores.record(name).encoding.windows for name in ("a", "b", "c" * 90)]
    lists = pa.chunked_array([windows_column(made, windows_type(stores.DIMENSIONS))])
    plain = pa.chunked_array([windows_column(made, pa.binary())])
    assert window_blobs(lists) == window_blobs(plain)
    assert window_blobs(lists.slice(1, 2)) == window_blobs(plain)[1:]
    broken = pa.chunked_array([pa.array([None, [], [[1.0] * 8, None]], lists.type)])
    assert [blob and len(blob) for blob in window_blobs(broken)] == [None, b"", 32]
