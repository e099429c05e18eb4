"""The stored map of each generation: one row, so that one commit replaces a whole map."""

from __future__ import annotations

import hashlib
import io
import time
import uuid
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import structlog
from numpy.typing import NDArray

from service import executors
from service.index import sql
from service.index.rows.keyed import KeyedTable, Row
from service.index.sql import Sql
from service.index.storage.database import Database
from service.logs import outline

log = structlog.get_logger("docsplit.index")

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]

_TOPICS = ("version", "made", "topics")


@dataclass(frozen=True, slots=True)
class Topic:
    """A group of similar documents.

    Attributes:
        words: that distinguish its documents from the others, the best first.
        examples: ids of the documents in its middle.
    """

    words: list[str]
    examples: list[str]


@dataclass(frozen=True, slots=True)
class Space:
    """The space in which the map compares documents.

    Attributes:
        mean: of the unit vectors, ``[dimensions]``.
        basis: the principal components, ``[dimensions, components]``.
        points: the documents whose positions were computed, ``[computed, components]``.
        places: where these documents stand in ``Map.ids``, ``[computed]``.
    """

    mean: Floats
    basis: Floats
    points: Floats
    places: Integers

    def project(self, vectors: Floats) -> Floats:
        """Vectors ``[n, dimensions]`` as points ``[n, components]``."""
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        found: Floats = (vectors / np.maximum(lengths, 1e-9) - self.mean) @ self.basis
        return found


@dataclass(frozen=True, slots=True)
class Map:
    """The documents of a generation in two dimensions, at the time when the map was made.

    Attributes:
        ids: in ascending order.
        updated: when each document was written, microseconds since the epoch, int64 ``[n]``.
        positions: ``[n, 2]``.
        topic: of each document, a position in ``topics`` or -1, ``[n]``.
        made: seconds since the epoch.
        version: random for each map.
    """

    ids: list[str]
    updated: NDArray[np.int64]
    positions: Floats
    topic: Integers
    topics: list[Topic]
    made: float
    version: str


class Maps:
    """The maps of all generations, by the name of their table."""

    def __init__(self, database: Database) -> None:
        text, blob = pa.string(), pa.binary()
        self._table = KeyedTable(
            database,
            "maps",
            table=text,
            version=text,
            made=pa.float64(),
            topics=blob,
            documents=blob,
            space=blob,
            checksum=text,
            space_checksum=text,
        )

    async def put(self, row: Row, replace: bool | Sql = True) -> None:
        """Store a map from ``row`` in place of the former map of its generation."""
        await self._table.put(row, replace=replace)
        await self._table.sync()
        await self._table.tidy()

    async def put_over(self, row: Row, former: str | None) -> bool:
        """Store a map unless its generation has another than a former one; whether it did.

        Args:
            former: the version of that map; None if there was none.
        """
        same = False if former is None else sql.compare("target.version", "=", former)
        await self.put(row, same)
        stored: bool = await self.version(row["table"]) == row["version"]
        return stored

    async def version(self, table: str) -> str | None:
        """The version of the map of a generation; None without one."""
        held = await self._table.get(table, ["version"])
        return None if held is None else held["version"]

    async def get(self, table: str) -> Map | None:
        """The map of a generation; None if there is none or it is damaged."""
        held = await self._table.get(table, ["table", *_TOPICS, "documents", "checksum"])
        return None if held is None else await executors.STORE.run(_map, held)

    async def space(self, table: str, version: str) -> Space | None:
        """The space of a map; None if it is damaged or another map has replaced this one."""
        held = await self._table.get(table, ["table", "version", "space", "space_checksum"])
        if held is None or held["version"] != version:
            return None
        return await executors.STORE.run(_space, held)

    async def forget(self, tables: Collection[str]) -> None:
        """Delete the maps of deleted tables."""
        try:
            await self._table.delete(self._table.of(*tables))
        except Exception as error:  # noqa: BLE001 an index can be deleted without it
            log.error("maps_not_deleted", outline=outline(error))


def row(
    table: str,
    ids: list[str],
    updated: NDArray[np.int64],
    positions: Floats,
    topic: Integers,
    topics: list[Topic],
    space: Space,
) -> Row:
    """A new map of the generation in ``table`` as a row; see ``Map`` and ``Space``."""
    names = np.frombuffer(orjson.dumps(ids), dtype=np.uint8)
    made: Row = {
        "table": table,
        "version": uuid.uuid4().hex,
        "made": time.time(),
        "topics": orjson.dumps([asdict(one) for one in topics]),
        "documents": _packed(ids=names, updated=updated, positions=positions, topic=topic),
        "space": _packed(**{**asdict(space), "points": space.points.astype(np.float16)}),
    }
    return made | {
        "checksum": _sum(made, *_TOPICS, "documents"),
        "space_checksum": _sum(made, "version", "space"),
    }


def _map(held: Row) -> Map | None:
    if held["checksum"] != _sum(held, *_TOPICS, "documents"):
        log.error("map_damaged", table=held["table"])
        return None
    arrays = _opened(held["documents"])
    ids = orjson.loads(arrays.pop("ids").tobytes())
    topics = [Topic(**one) for one in orjson.loads(held["topics"])]
    return Map(ids=ids, topics=topics, made=held["made"], version=held["version"], **arrays)


def _space(held: Row) -> Space | None:
    if held["space_checksum"] != _sum(held, "version", "space"):
        log.error("map_damaged", table=held["table"])
        return None
    arrays = _opened(held["space"])
    return Space(**{**arrays, "points": arrays["points"].astype(np.float32)})


def _packed(**arrays: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _opened(blob: bytes) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(blob), allow_pickle=False) as held:
        return dict(held)


def _sum(held: Row, *columns: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for value in (held["table"], *(held[name] for name in columns)):
        blob = value if isinstance(value, bytes) else str(value).encode()
        digest.update(len(blob).to_bytes(8, "little"))
        digest.update(blob)
    return digest.hexdigest()
