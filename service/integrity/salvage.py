"""Reads the readable rows of damaged files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from service.integrity import reading
from service.integrity.reader import EndedError, Reader

# Reads columns of rows by their row ids, with the column ``_rowid``, without deleted rows. On
# damage it raises any error.
Take = Callable[[Sequence[str], Sequence[int]], Awaitable[pa.Table]]

# fragments with more rows are read in steps: each failure costs a read
_FEW = 4096
_STEP = 256
_ENDED_STEP = 64
_BATCH = 1024


def through(reader: Reader, database: str, table: str) -> Take:
    """Reads of a table in another process."""

    async def take(columns: Sequence[str], rows: Sequence[int]) -> pa.Table:
        return await reader.run(reading.take, database, table, columns, rows)

    return take


async def salvage(take: Take, schema: pa.Schema, fragment: int, rows: int) -> pa.Table:
    """The undeleted rows of a fragment, with fillers for unreadable values.

    A filler does not match the checksums of its row. A row without a readable id is left out.

    Returns:
        The columns of the schema, and ``_rowid``.
    """
    first = fragment << 32
    ids = await _column(take, "id", list(range(first, first + rows)), rows)
    found = list(ids)
    columns = {"id": pa.array([ids[row] for row in found], pa.string())}
    for field in schema:
        if field.name != "id":
            held = await _column(take, field.name, found, rows)
            values = [held.get(row, _filler(field)) for row in found]
            columns[field.name] = pa.array(values, field.type)
    whole = pa.table([columns[name] for name in schema.names], schema=schema)
    return whole.append_column("_rowid", pa.array(found, pa.uint64()))


async def readable(take: Take, columns: Sequence[str], fragment: int, rows: int) -> bool:
    """Whether a whole fragment can be read."""
    first, end = fragment << 32, (fragment << 32) + rows
    try:
        for start in range(first, end, _BATCH):
            await take(columns, range(start, min(start + _BATCH, end)))
    except Exception:  # noqa: BLE001 LanceDB panics on some damage
        return False
    return True


async def _column(take: Take, name: str, rows: list[int], total: int) -> dict[int, Any]:
    """A column's readable values, by row id."""
    held: dict[int, Any] = {}
    smallest = 1 if total <= _FEW else _STEP
    if rows and await _some(take, name, rows):
        for start in range(0, len(rows), _BATCH):
            held |= await _part(take, name, rows[start : start + _BATCH], smallest)
    return held


async def _part(take: Take, name: str, rows: list[int], smallest: int) -> dict[int, Any]:
    try:
        held = await take([name], rows)
        values = held[name].to_pylist()
        return dict(zip(held["_rowid"].to_pylist(), values, strict=True))
    except EndedError:
        # the next process takes longer than many reads
        smallest = max(smallest, _ENDED_STEP)
    except Exception:  # noqa: BLE001, S110 LanceDB panics on some damage
        pass
    if len(rows) <= smallest:
        return {}
    half = len(rows) // 2
    first = await _part(take, name, rows[:half], smallest)
    return first | await _part(take, name, rows[half:], smallest)


async def _some(take: Take, name: str, rows: list[int]) -> bool:
    """Whether the first, the middle or the last row can be read."""
    for row in (rows[0], rows[len(rows) // 2], rows[-1]):
        # LanceDB panics on some damage
        with suppress(Exception):
            await take([name], [row])
            return True
    return False


def _filler(field: pa.Field) -> Any:
    if field.nullable:
        return None
    if pa.types.is_list(field.type):
        return []
    if pa.types.is_binary(field.type):
        return b""
    return {pa.string(): "", pa.bool_(): False}.get(field.type, 0)
