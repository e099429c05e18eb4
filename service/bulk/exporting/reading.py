"""Reads one version of an index from beginning to end, in parts of bounded size."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service import executors
from service.bulk.exporting import columns
from service.bulk.exporting.destination import Damage
from service.errors import CommandError
from service.index import sql
from service.index.documents import Index
from service.index.indexes import Indexes
from service.index.storage import pins
from service.integrity import rows as integrity

T = TypeVar("T")

# bytes of a part, by the ends of its windows; titles and metadata come on top
_PART_BYTES = 4 * 2**20
_PART_ROWS = 1024
# rows whose ends are read at once
_AHEAD = 2048
_RENEW_SECONDS = pins.SECONDS / 24


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a table, without damaged rows and tombstones.

    Attributes:
        rows: as the export has them.
        sizes: about how many bytes each takes.
        places: number of each in the table, from 0.
        damaged: places and faults of the damaged ones.
        end: number of the table's rows up to the end of the part.
    """

    rows: pa.Table
    sizes: npt.NDArray[np.int64]
    places: list[int]
    damaged: list[tuple[int, Damage]]
    end: int


class Snapshot:
    """A pinned version of an index.

    Args:
        indexes: of the store.
        index: to read.
        pin: hex digits that name the reader.
    """

    def __init__(self, indexes: Indexes, index: Index, pin: str) -> None:
        self.index = index
        self._indexes = indexes
        self._pin = pin
        self._table: Any = index.table
        self._columns: list[str] = []
        self._renewed = float("-inf")
        self.version = 0
        self.pinned = True

    async def open(self, version: int | None) -> None:
        """Pin a version, by default the newest, and open it.

        Raises:
            CommandError: the version is gone, or it cannot be opened.
        """
        table: Any = await self._read(self._indexes.database.open_table(self.index.table.name))
        newest = await self._read(table.version())
        self.version = version or newest
        try:
            await table.checkout(self.version)
            await table.checkout_latest()
            self.version = await pins.hold(table, self._pin, version)
        except ValueError as error:
            raise self._gone() from error
        except (OSError, RuntimeError):
            # for example a store that is only readable
            self.pinned = False
        await self._read(table.checkout(self.version))
        self._table = table
        # the table may have got columns since then
        self._columns = (await self._read(table.schema())).names
        self._renewed = time.monotonic()

    async def documents(self) -> int:
        """The number of documents."""
        return int(await self._read(self._table.count_rows(sql.LIVE)))

    async def parts(self, first: int, schema: pa.Schema) -> AsyncGenerator[Part, None]:
        """The rows from ``first`` on, in the order of the table.

        Args:
            first: number of the table's first rows that are left out.
            schema: of the export.

        Raises:
            CommandError: rows cannot be read, or the version is gone.
        """
        async for number in self._numbers(first, schema.field("vector").type.list_size):
            query = self._table.query().select(self._columns).offset(first).limit(number)
            found = await self._read(query.to_arrow())
            part = await executors.STORE.run(self._part, found, first, schema)
            first = part.end
            yield part
            await self._renew()

    async def _numbers(self, first: int, dimensions: int) -> AsyncGenerator[int, None]:
        """Numbers of rows that fit into memory together, from a row on."""
        while True:
            query = self._table.query().select(["window_ends"]).offset(first).limit(_AHEAD)
            ends = (await self._read(query.to_arrow()))["window_ends"].to_pylist()
            if not ends:
                return
            first += len(ends)
            number = size = 0
            for own in ends:
                number += 1
                # damage may leave null in either place
                size += ((own[-1] or 0) if own else 0) + 2 * dimensions * len(own or ())
                if size >= _PART_BYTES or number == _PART_ROWS:
                    yield number
                    number = size = 0
            if number:
                yield number

    async def release(self) -> None:
        """End the pin; it also ends by itself."""
        if self.version and self.pinned:
            with suppress(OSError, RuntimeError, ValueError):
                await self._table.checkout_latest()
                await pins.release(self._table, self._pin)

    def _part(self, found: pa.Table, first: int, schema: pa.Schema) -> Part:
        faults = list(integrity.faults(found, self.index))
        sound = [not bad for bad in faults]
        alive = [not gone for gone in found["deleted"].to_pylist()]
        kept = [place for place, pair in enumerate(zip(sound, alive, strict=True)) if all(pair)]
        names = found["id"].cast(pa.binary())
        damaged = [
            (first + place, Damage(names[place].as_py().decode("utf-8", "replace"), part))
            for place, bad in enumerate(faults)
            for part in bad
        ]
        whole = found.take(pa.array(kept, pa.int64()))
        rows = columns.rows(whole, schema)
        places = [first + place for place in kept]
        return Part(rows, columns.sizes(rows, schema), places, damaged, first + found.num_rows)

    async def _renew(self) -> None:
        if not self.pinned or time.monotonic() - self._renewed < _RENEW_SECONDS:
            return
        table = await self._read(self._indexes.database.open_table(self.index.table.name))
        await self._read(pins.hold(table, self._pin, self.version))
        self._renewed = time.monotonic()

    async def _read(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except Exception as error:
            # LanceDB panics on some damage
            if await self._lost():
                raise self._gone() from error
            raise CommandError(
                f"the index cannot be read ({integrity.outline(error)}): docsplit-index check "
                "names what is damaged; what is complete stays"
            ) from error

    async def _lost(self) -> bool:
        try:
            table = await self._indexes.database.open_table(self.index.table.name)
            if self.version:
                await table.checkout(self.version)
        except ValueError:
            return True
        except Exception:  # noqa: BLE001 the first error says more
            return False
        return False

    def _gone(self) -> CommandError:
        return CommandError(
            f"version {self.version} of the index is gone, and this export reads only this one: "
            "empty the folder, and export again"
        )
