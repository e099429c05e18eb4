"""Rows that several processes change under conditions."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lancedb.table import AsyncTable

from service.index import sql
from service.index.leases import Leases
from service.index.rows import keyed
from service.index.rows.keyed import KeyedTable
from service.index.storage.database import connect, table_names

COLUMNS = {"name": pa.string(), "holder": pa.string(), "count": pa.int64()}


async def test_the_first_of_several_writers_under_one_condition_wins(tmp_path: Path) -> None:
    tables = [KeyedTable(await connect(str(tmp_path)), "places", **COLUMNS) for _ in range(3)]
    one = tables[0]
    await one.put({"name": "a", "holder": "", "count": 0})

    async def take(number: int, table: KeyedTable) -> bool:
        row = {"name": "a", "holder": str(number), "count": 1}
        await table.put(row, replace=sql.compare("target.holder", "=", ""))
        held = await table.get("a")
        return held is not None and held["holder"] == str(number)

    assert sum(await asyncio.gather(*(take(*pair) for pair in enumerate(tables)))) == 1
    changes = (table.change(sql.compare("count", "=", 1), count=2) for table in tables)
    assert sum(await asyncio.gather(*changes)) == 1
    # the control: without a condition each of them writes
    for number, table in enumerate(tables):
        await table.put({"name": "a", "holder": str(number), "count": 0})
        assert await one.get("a", ["holder"]) == {"holder": str(number)}
    await one.put({"name": "a", "holder": "late", "count": 0}, replace=False)
    assert await one.get("a", ["holder"]) == {"holder": "2"}


async def test_the_creation_of_a_table_keeps_what_another_process_wrote_meanwhile(
    tmp_path: Path,
) -> None:
    other = KeyedTable(await connect(str(tmp_path)), "places", **COLUMNS)
    await other.put({"name": "a", "holder": "other", "count": 1})
    # as in a process that has just found no table
    database = await connect(str(tmp_path))
    await database._create_once("places", other.schema)
    table = KeyedTable(database, "places", **COLUMNS)
    await table.put({"name": "b", "holder": "this", "count": 1})
    assert sorted(await other.keys()) == ["a", "b"]
    assert await table_names(database) == ["places"]
    # the control: LanceDB's own creation overwrites a table that appears meanwhile
    await database.create_table("places", schema=table.schema, mode="overwrite")
    assert await other.keys() == []


async def test_reads_and_deletions_create_no_table(tmp_path: Path) -> None:
    database = await connect(str(tmp_path))
    table = KeyedTable(database, "places", **COLUMNS)
    assert await table.get("a") is None
    assert await table.keys() == []
    assert await table.rows() == []
    await table.delete(table.of("a"))
    assert await table_names(database) == []
    for name in "abc":
        await table.put({"name": name, "holder": "", "count": 0})
    await table.delete(table.of("a", "c"))
    await table.tidy()
    assert await table.keys() == ["b"]


@pytest.mark.parametrize(
    ("reason", "failures", "writes"),
    [
        ("lance error: Too many concurrent writers. Attempted 10 retries.", 3, 4),
        ("lance error: Too many concurrent writers. Attempted 10 retries.", 99, 8),
        ("the disk is full", 1, 1),
    ],
)
async def test_a_write_begins_again_after_lancedb_gave_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, failures: int, writes: int
) -> None:
    monkeypatch.setattr(keyed, "_PAUSE_SECONDS", 0.001)
    update = AsyncTable.update
    calls = 0

    async def overtaken(table: AsyncTable, *values: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise RuntimeError(reason)
        return await update(table, *values, **options)

    table = KeyedTable(await connect(str(tmp_path)), "places", **COLUMNS)
    await table.put({"name": "a", "holder": "", "count": 0})
    monkeypatch.setattr(AsyncTable, "update", overtaken)
    if failures < writes:
        assert await table.change(sql.compare(table.key, "=", "a"), count=7)
    else:
        with pytest.raises(RuntimeError, match=reason):
            await table.change(sql.compare(table.key, "=", "a"), count=7)
    row = await table.get("a")
    assert row is not None
    assert (row["count"], calls) == (7 if failures < writes else 0, writes)


async def test_tidying_keeps_the_version_that_was_current_until_a_moment_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "KEEP_VERSIONS", timedelta(seconds=1))

    database = await connect(str(tmp_path))
    table = KeyedTable(database, "places", **COLUMNS)
    await table.put({"name": "a", "holder": "first", "count": 0})
    before = await (await database.open_table("places")).version()
    await asyncio.sleep(0.5)
    await table.put({"name": "a", "holder": "second", "count": 0})
    await asyncio.sleep(1.2)
    reader = await database.open_table("places", still=True)
    await table.put({"name": "a", "holder": "third", "count": 0})
    await table.tidy()
    assert (await reader.query().to_arrow())["holder"].to_pylist() == ["second"]
    # the control: it was replaced long ago
    assert before not in {held["version"] for held in await reader.list_versions()}


async def test_a_lease_outlives_a_failed_renewal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = [Leases(await connect(str(tmp_path))) for _ in range(2)]
    acquire, calls = one.acquire, 0

    async def failing(name: str, seconds: float) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("Generic S3 error: error sending request")
        return await acquire(name, seconds)

    assert await one.acquire("work", 3)
    monkeypatch.setattr(one, "acquire", failing)
    async with one.kept("work", 3):
        await asyncio.sleep(4)
        assert calls > 1
        assert not await other.acquire("work", 3)
    # the control: the work has ended
    assert await other.acquire("work", 3)
