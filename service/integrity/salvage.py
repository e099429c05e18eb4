"""Reads the readable rows of damaged files."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from lancedb.table import AsyncTable

# fragments with more rows are read in steps: each failure costs a read
_FEW = 4096
_STEP = 256


async def salvage(table: AsyncTable, schema: pa.Schema, fragment: int, rows: int) -> pa.Table:
    """The undeleted rows of a fragment, with fillers for unreadable values.

    A filler does not match the checksums of its row. A row without a readable id is left out.
    """
    first = fragment << 32
    ids = await _column(table, "id", list(range(first, first + rows)), rows)
    found = list(ids)
    columns = {"id": pa.array([ids[row] for row in found], pa.string())}
    for field in schema:
        if field.name != "id":
            held = await _column(table, field.name, found, rows)
            values = [held.get(row, _filler(field)) for row in found]
            columns[field.name] = pa.array(values, field.type)
    return pa.table([columns[name] for name in schema.names], schema=schema)


async def readable(table: AsyncTable, columns: Sequence[str], fragment: int, rows: int) -> bool:
    """Whether a whole fragment can be read."""
    taken = list(range(fragment << 32, (fragment << 32) + rows))
    try:
        await table.take_row_ids(taken).select(list(columns)).to_arrow()
    except Exception:  # noqa: BLE001 LanceDB panics on some damage
        return False
    return True


async def _column(table: AsyncTable, name: str, rows: list[int], total: int) -> dict[int, Any]:
    if not rows:
        return {}
    try:
        query = table.take_row_ids(rows).select([name]).with_row_id()
        held = await query.to_arrow()
        values = held[name].to_pylist()
        return dict(zip(held["_rowid"].to_pylist(), values, strict=True))
    except Exception:  # noqa: BLE001 LanceDB panics on some damage
        if len(rows) <= (1 if total <= _FEW else _STEP):
            return {}
    half = len(rows) // 2
    if len(rows) == total and not await _some(table, name, rows):
        return {}
    first = await _column(table, name, rows[:half], total)
    return first | await _column(table, name, rows[half:], total)


async def _some(table: AsyncTable, name: str, rows: list[int]) -> bool:
    """Whether the first, the middle or the last row can be read."""
    for row in (rows[0], rows[len(rows) // 2], rows[-1]):
        # LanceDB panics on some damage
        with suppress(Exception):
            await table.take_row_ids([row]).select([name]).to_arrow()
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
