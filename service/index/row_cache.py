"""The ids, digests and states of an index's rows, in memory.

A search ranks hundreds of rows, and LanceDB reads each of their values by itself, in some 15 µs of
a core. A row never changes, because each write of a document makes a new row. So its values stay
here until no search uses them and others need the room.

Only a table that was set back to a former version after damage can give the position of a row to
another one. So a caller verifies these values with what it reads of the row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from lancedb.table import AsyncTable
from numpy.typing import NDArray

from service import executors
from service.index import sql
from service.logs import outline

log = structlog.get_logger("docsplit.index")

DEFAULT_BYTES = 64 * 2**20
# values that are unused for this long make room for others
IDLE_SECONDS = 60.0
# limit of the share of a process's time for reading them
EFFORT = 0.1
_BATCH_ROWS = 8192
_NAMES = ("id", "digest", "updated", "deleted")
_OFFSET_BITS = 32


@dataclass(slots=True)
class _Fragment:
    """Values of the rows of one file.

    Attributes:
        rows: their positions (``_rowid``), ascending.
        values: of the rows, in the same order.
        used: when a search used them last.
    """

    rows: NDArray[np.uint64]
    values: pa.Table
    used: float

    @property
    def bytes(self) -> int:
        return int(self.values.nbytes)

    def find(self, rows: NDArray[np.uint64]) -> pa.Table | None:
        """The values of some rows, in their order; None if one of them is missing."""
        places = np.searchsorted(self.rows, rows).clip(max=len(self.rows) - 1)
        if not np.array_equal(self.rows[places], rows):
            return None
        return self.values.take(pa.array(places))


class RowCache:
    """The values of one process's indexes, limited to a number of bytes.

    Attributes:
        mistakes: how often values were wrong.
    """

    def __init__(self, size: int = DEFAULT_BYTES) -> None:
        self.mistakes = 0
        self._size = size
        self._held: dict[tuple[str, int], _Fragment] = {}
        self._loading: asyncio.Task[None] | None = None
        self._rests_until = 0.0

    @property
    def size_bytes(self) -> int:
        """The bytes in memory."""
        return sum(held.bytes for held in self._held.values())

    def find(self, table: AsyncTable, rows: Sequence[int]) -> pa.Table | None:
        """The values of some rows, in their order; None if one of them is not in memory.

        Then the values of its file are read in the background.

        Args:
            table: that a search found the rows in.
            rows: their positions (``_rowid``).

        Returns:
            ``_rowid``, ``id``, ``digest``, ``updated``, ``deleted``; ``characters`` of the text;
            number of ``windows``.
        """
        wanted = np.asarray(rows, dtype=np.uint64)
        fragments = wanted >> _OFFSET_BITS
        parts, places, missing = [], [], []
        for number in np.unique(fragments).tolist():
            own = np.flatnonzero(fragments == number)
            held = self._held.get((table.name, number))
            values = None if held is None else held.find(wanted[own])
            if held is None or values is None:
                missing.append(number)
                continue
            held.used = time.monotonic()
            parts.append(values)
            places.append(own)
        if missing:
            self._load_soon(table, missing)
        if missing or not parts:
            return None
        return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places))))

    def compare(self, table: AsyncTable, read: pa.Table) -> None:
        """Leave the values of a table out from now on if those of rows are others.

        Args:
            read: ``_rowid``, ``id`` and ``digest`` from the table.
        """
        known = self.find(table, read["_rowid"].to_pylist())
        names = [name for name in _NAMES if name in read.schema.names]
        if known is not None and not all(known[name].equals(read[name]) for name in names):
            log.warning("row_cache_wrong", table=table.name)
            self.mistakes += 1
            self._held = {key: held for key, held in self._held.items() if key[0] != table.name}

    def _load_soon(self, table: AsyncTable, fragments: Sequence[int]) -> None:
        busy = self._loading is not None and not self._loading.done()
        if not busy and time.monotonic() >= self._rests_until and self._size:
            self._loading = asyncio.create_task(self._load(table, fragments))

    async def _load(self, table: AsyncTable, fragments: Sequence[int]) -> None:
        began = time.monotonic()
        try:
            for number in fragments:
                await self._read(table, number)
        except Exception as error:  # noqa: BLE001 searches read the values themselves
            log.warning("row_cache_not_loaded", table=table.name, outline=outline(error))
        now = time.monotonic()
        self._rests_until = max(self._rests_until, now + (now - began) / EFFORT)

    async def _read(self, table: AsyncTable, number: int) -> None:
        """Read the values of one file, unless there is no room for them."""
        self._held.pop((table.name, number), None)
        size = 0
        first, end = number << _OFFSET_BITS, (number + 1) << _OFFSET_BITS
        query = table.query().where(sql.within("_rowid", first, end))
        query = query.select([*_NAMES, "window_ends"]).with_row_id()
        read: list[pa.Table] = []
        async for batch in await query.to_batches(max_batch_length=_BATCH_ROWS):
            read.append(measured(pa.Table.from_batches([batch])))
            size += read[-1].nbytes
            if not self._make_room(size):
                self._rests_until = time.monotonic() + IDLE_SECONDS
                return
        if read:
            made = await executors.STORE.run(_joined, read)
            self._held[table.name, number] = made

    def _make_room(self, size: int) -> bool:
        """Whether there is room for some bytes, perhaps without values that are not used."""
        if self.size_bytes + size > self._size:
            since = time.monotonic() - IDLE_SECONDS
            self._held = {key: held for key, held in self._held.items() if held.used > since}
        return self.size_bytes + size <= self._size


def lengths(window_ends: pa.ChunkedArray) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The characters and the windows of documents by their column ``window_ends``."""
    column = window_ends.combine_chunks()
    starts, stops = np.asarray(column.offsets)[:-1], np.asarray(column.offsets)[1:]
    # the last window ends where the text ends; the 0 is for documents without windows
    ends = np.append(np.asarray(column.values), 0)
    characters = np.where(stops > starts, ends[stops - 1], 0)
    return characters.astype(np.int32), (stops - starts).astype(np.int32)


async def take(
    table: AsyncTable, rows: Sequence[int], columns: Sequence[str], known: pa.Table | None = None
) -> pa.Table:
    """``_rowid`` and columns of some rows, in no order; without those that are deleted.

    Args:
        rows: their positions (``_rowid``).
        known: the values of the rows in ``RowCache``, which are not read then.
    """
    query = table.take_row_ids(list(rows)).with_row_id()
    if known is None:
        return await query.select(list(columns)).to_arrow()
    found = await query.select([name for name in columns if name not in _NAMES]).to_arrow()
    own = known.take(pc.index_in(found["_rowid"], known["_rowid"].combine_chunks()))
    for name in set(_NAMES) & set(columns):
        found = found.append_column(own.schema.field(name), own[name])
    return found.select(["_rowid", *columns])


def measured(read: pa.Table) -> pa.Table:
    """Rows with ``characters`` and ``windows`` in place of ``window_ends``."""
    characters, windows = lengths(read["window_ends"])
    values = read.drop_columns(["window_ends"])
    values = values.append_column("characters", pa.array(characters))
    return values.append_column("windows", pa.array(windows))


def _joined(read: Sequence[pa.Table]) -> _Fragment:
    values = pa.concat_tables(read).combine_chunks()
    rows = values["_rowid"].to_numpy().astype(np.uint64)
    if np.any(rows[1:] < rows[:-1]):
        values = values.sort_by("_rowid")
        rows = np.sort(rows)
    return _Fragment(rows, values, time.monotonic())
