"""Texts and vectors of jobs, in two tables for each job, which every replica sees.

A row holds a block and its checksum. A write appends rows, so a process that ends leaves whole
blocks. Two replicas may append the same block if one of them seemed to be gone: the first row of a
block counts. No block is missing before another, because a writer appends a block only after it
has written or found all blocks before it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from service.errors import StoreError
from service.index.storage.database import Database, table_names

# after the bytes of a block, whose readers stop at its end; earlier versions wrote none
_MARK, _SUM = b"blk1", 16

_SCHEMA = pa.schema(
    [
        ("block", pa.int64()),
        ("rows", pa.int64()),
        ("failed", pa.int64()),
        ("data", pa.large_binary()),
    ]
)
Kind = Literal["texts", "vectors"]
KINDS: tuple[Kind, ...] = ("texts", "vectors")
_NAME = re.compile("([0-9]+)_([0-9a-f]{32})_(?:texts|vectors)")


class Place(NamedTuple):
    """Where the tables of a job are.

    Attributes:
        began: the request that brought the texts, in whole seconds since the epoch.
        job: the id of the job.
    """

    began: int
    job: str


class Block(NamedTuple):
    """A row of a table.

    Attributes:
        number: of the block in the file.
        rows: its texts.
        failed: of these, texts without a vector.
        data: see ``service.textfiles.blocks``.
    """

    number: int
    rows: int
    failed: int
    data: bytes


class Written(NamedTuple):
    """What of a job is written.

    Attributes:
        blocks: of vectors.
        rows: texts in these blocks.
        failed: of these, texts without a vector.
    """

    blocks: int
    rows: int
    failed: int


class Tables:
    """The tables of all jobs.

    Args:
        database: holds them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, place: Place) -> None:
        """Create the empty tables of a job."""
        for kind in KINDS:
            await self._database.create_table(_name(place, kind), schema=_SCHEMA)

    async def add_texts(self, place: Place, blocks: Sequence[Block]) -> None:
        """Append blocks of texts."""
        await self._add(_name(place, "texts"), blocks)

    async def add_vectors(self, place: Place, block: Block) -> None:
        """Append a block of vectors; it is durable when this returns."""
        await self._add(_name(place, "vectors"), [block])
        await self._database.sync()

    async def sync(self) -> None:
        """Return when all earlier writes are as durable as the settings ask."""
        await self._database.sync()

    async def texts(self, place: Place, block: int) -> bytes:
        """A block of texts.

        Raises:
            StoreError: it is damaged.
        """
        table = await self._database.open_table(_name(place, "texts"))
        rows = (await table.take_offsets([block]).to_arrow()).to_pylist()
        held = _sound(rows[0]) if rows else None
        if held is None or held.number != block:
            raise StoreError("the texts of this job are damaged: send the file again", "damaged")
        return held.data

    async def find(self, place: Place) -> Written | None:
        """How much of a job's vectors is written; None if its tables are gone."""
        table = await self._database.find(_name(place, "vectors"))
        if table is None:
            return None
        found = await table.query().select(["block", "rows", "failed"]).to_arrow()
        first = {row["block"]: row for row in reversed(found.to_pylist())}
        blocks = first.values()
        return Written(
            len(first), sum(row["rows"] for row in blocks), sum(row["failed"] for row in blocks)
        )

    async def vectors(self, place: Place, blocks: int) -> AsyncIterator[bytes] | None:
        """The blocks of vectors in their order, one at a time; None if the tables are gone.

        Args:
            blocks: how many the job has. The iterator raises StoreError where one is damaged or
                missing.
        """
        if await self._database.find(_name(place, "vectors")) is None:
            return None
        return self._blocks(place, blocks)

    async def drop(self, place: Place, *kinds: Kind) -> None:
        """Remove the tables of a job, or those of some kinds."""
        for kind in kinds or KINDS:
            await self._database.drop_table(_name(place, kind), ignore_missing=True)

    async def places(self) -> set[Place]:
        """The jobs that have tables."""
        found = map(_NAME.fullmatch, await table_names(self._database))
        return {Place(int(one[1]), one[2]) for one in found if one is not None}

    async def _blocks(self, place: Place, blocks: int) -> AsyncIterator[bytes]:
        offset = block = 0
        while block < blocks:
            table = await self._database.open_table(_name(place, "vectors"))
            rows = (await table.take_offsets([offset]).to_arrow()).to_pylist()
            held = _sound(rows[0]) if rows else None
            if held is None or held.number > block:
                raise StoreError(
                    "the vectors of this job are damaged: send the file again", "damaged"
                )
            offset += 1
            if held.number == block:
                block += 1
                yield held.data

    async def _add(self, name: str, blocks: Sequence[Block]) -> None:
        table = await self._database.open_table(name)
        sealed = [block._replace(data=block.data + _MARK + _sum(block)) for block in blocks]
        columns = dict(zip(_SCHEMA.names, zip(*sealed, strict=True), strict=True))
        await table.add(pa.table(columns, schema=_SCHEMA))


def _name(place: Place, kind: Kind) -> str:
    return f"{place.began}_{place.job}_{kind}"


def _sum(block: Block) -> bytes:
    head = b"%d %d %d " % block[:3]
    return hashlib.blake2b(head + block.data, digest_size=_SUM).digest()


def _sound(row: dict[str, Any]) -> Block | None:
    """The block of a row; None if it is damaged."""
    block = Block(row["block"], row["rows"], row["failed"], row["data"])
    end = len(block.data) - _SUM
    if block.data[end - len(_MARK) : end] != _MARK:
        return block
    held = block._replace(data=block.data[: end - len(_MARK)])
    return held if block.data[end:] == _sum(held) else None
