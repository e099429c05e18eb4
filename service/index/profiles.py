"""Profiles of generations: one process fits each in the background, and all processes use it."""

import asyncio
import hashlib
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import structlog
from cachetools import LRUCache
from lancedb.expr import col, lit

from docsplit.ranking.adaptation import LEAST_HALVES, Gain, Profile, Sample
from service import executors
from service.index.documents import Index
from service.index.rows import checksums, records
from service.index.rows.checksums import Part
from service.index.rows.keyed import KeyedTable
from service.index.rows.vectors import vector_matrix, window_blobs
from service.index.storage.database import Database
from service.logs import outline

log = structlog.get_logger("docsplit.index")

# a process uses a profile that another process fitted after this time at the latest
CHECK_SECONDS = 3.0
# documents that a fit reads, and how many of them at a time
SAMPLE = 2000
PAGE = 32
# fitted again when the index has this many times the documents
GROWTH = 2
# limit of the profiles that a process keeps in memory
KEPT_BYTES = 64_000_000
_COLUMNS = ("table", "version", "documents", "halves", "raw", "adapted", "error", "numbers")


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of a fit.

    Attributes:
        version: random for each fit.
        documents: of the index at the time.
        gain: on halves of its documents.
        profile: None if it does not help.
    """

    version: str
    documents: int
    gain: Gain
    profile: Profile | None


@dataclass(frozen=True, slots=True)
class _Read:
    """What the table said; None if it has no profile, or a damaged one."""

    fitted: Fitted | None
    time: float


class Profiles:
    """The profiles of all generations, by the name of their table.

    Args:
        fitted: called after each fit with its outcome: ``adapted`` or ``raw``.
    """

    def __init__(self, database: Database, fitted: Callable[[str], None]) -> None:
        text, number, share = pa.string(), pa.int64(), pa.float64()
        kinds = (text, text, number, number, share, share, share, pa.binary())
        columns = dict(zip(_COLUMNS, kinds, strict=True))
        self._table = KeyedTable(database, "profiles", **columns, checksum=text)
        self._fitted = fitted
        self._reading = asyncio.Lock()
        self._known: LRUCache[str, _Read] = LRUCache(KEPT_BYTES, _size)
        self._small: set[str] = set()

    async def get(self, index: Index) -> Fitted | None:
        """The profile of a generation; None if there is none or it is damaged."""
        table = index.table.name
        if not self._fresh(table):
            async with self._reading:
                if not self._fresh(table):
                    return await self._update(table)
        return self._known[table].fitted

    async def wanted(self, index: Index) -> bool:
        """Whether a generation has enough documents for a first fit, or for another."""
        # another process may have fitted it a moment ago
        held = await self._update(index.table.name)
        least = LEAST_HALVES if held is None else GROWTH * held.documents
        return await index.count() >= least

    async def lacks(self, index: Index) -> bool:
        """Whether a generation needs its first fit; true at most once in each process."""
        table = index.table.name
        if table in self._small or await self.get(index) is not None:
            return False
        self._small.add(table)
        return await self.wanted(index)

    async def fit(self, index: Index) -> Fitted:
        """Fit a profile to a generation and store the result, whether it helps or not."""
        started = time.monotonic()
        documents = await index.count()
        sample = await _sample(index)
        profile, gain = await executors.STORE.run(sample.fit)
        made = Fitted(uuid.uuid4().hex, documents, gain, profile)
        table = index.table.name
        await self._table.put(_row(table, made))
        await self._table.sync()
        await self._table.tidy()
        self._known.pop(table, None)
        outcome = "raw" if made.profile is None else "adapted"
        log.info(
            "profile_fitted",
            table=table,
            outcome=outcome,
            documents=len(sample),
            halves=gain.halves,
            mrr_raw=round(gain.raw, 4),
            mrr_adapted=round(gain.adapted, 4),
            seconds=round(time.monotonic() - started, 2),
        )
        self._fitted(outcome)
        return made

    async def forget(self, tables: Collection[str]) -> None:
        """Delete the profiles of deleted tables."""
        for table in tables:
            self._known.pop(table, None)
            self._small.discard(table)
        try:
            await self._table.delete(self._table.of(*tables))
        except Exception as error:  # noqa: BLE001 an index can be deleted without it
            log.error("profiles_not_deleted", outline=outline(error))

    def _fresh(self, table: str) -> bool:
        known = self._known.get(table)
        return known is not None and time.monotonic() < known.time + CHECK_SECONDS

    async def _update(self, table: str) -> Fitted | None:
        fitted = await self._read(table)
        self._known[table] = _Read(fitted, time.monotonic())
        return fitted

    async def _read(self, table: str) -> Fitted | None:
        known = self._known.get(table)
        held = known.fitted if known is not None else None
        try:
            if held is not None:
                row = await self._table.get(table, ["version"])
                if row is not None and held.version == row["version"]:
                    return held
            row = await self._table.get(table)
            return None if row is None else _parsed(row)
        except Exception as error:  # noqa: BLE001 searches work without the profile
            log.error("profile_unreadable", table=table, outline=outline(error))
            return None


async def _sample(index: Index) -> Sample:
    """The statistics of a random sample of the documents."""
    ids = (await index.sample(SAMPLE))["id"].to_pylist()
    sample = Sample(index.schema.field("vector").type.list_size)
    parts = (Part.VECTOR, Part.WINDOWS, Part.LINKS)
    among = set(ids)
    for start in range(0, len(ids), PAGE):
        some = [lit(name) for name in ids[start : start + PAGE]]
        page = await index.select(col("id").isin(some), checksums.columns(*parts), PAGE)
        await executors.STORE.run(_add, sample, await index.sound(page, *parts), among)
    return sample


def _add(sample: Sample, page: pa.Table, among: Collection[str]) -> None:
    rows = page.select(["id", "window_ends", "links"]).to_pylist()
    for vector, blob, row in zip(
        vector_matrix(page), window_blobs(page["windows"]), rows, strict=True
    ):
        windows = records.windows(blob, row["window_ends"]).vectors
        sample.add(row["id"], vector, windows, [x for x in row["links"] if x in among])


def _row(table: str, made: Fitted) -> dict[str, Any]:
    gain, profile = made.gain, made.profile
    numbers = b""
    if profile is not None:
        numbers = np.vstack([profile.mean, profile.weights]).astype("<f4").tobytes()
    values = (table, made.version, made.documents, gain.halves, gain.raw, gain.adapted, gain.error)
    row = dict(zip(_COLUMNS, (*values, numbers), strict=True))
    return row | {"checksum": _checksum(row)}


def _parsed(row: dict[str, Any]) -> Fitted:
    if row["checksum"] != _checksum(row):
        raise ValueError("the checksum does not match")
    gain = Gain(row["halves"], row["raw"], row["adapted"], row["error"])
    profile = None
    # earlier versions fitted one even if most documents have one window
    if row["numbers"] and gain.speaks_for(min(row["documents"], SAMPLE)):
        numbers = np.frombuffer(row["numbers"], "<f4").astype(np.float32)
        # the mean, and d rows of d weights
        width = int(len(numbers) ** 0.5)
        numbers = numbers.reshape(width + 1, width)
        profile = Profile(numbers[0], numbers[1:])
    return Fitted(row["version"], row["documents"], gain, profile)


def _checksum(row: dict[str, Any]) -> str:
    *values, numbers = (row[column] for column in _COLUMNS)
    return hashlib.blake2b(repr(values).encode() + numbers, digest_size=16).hexdigest()


def _size(read: _Read) -> int:
    profile = read.fitted.profile if read.fitted is not None else None
    if profile is None:
        return 1000
    # the cache refuses larger values
    return min(profile.mean.nbytes + profile.weights.nbytes, KEPT_BYTES)
