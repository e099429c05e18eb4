"""The cache of vectors: this process, then Redis; equal windows are computed once."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from cachetools import LRUCache

from docsplit.windowing.pooling import Vectors
from docsplit.windowing.windows import Ids
from service.embedding.batching import clients

# bytes that an entry, its key and an array header take besides the vector (measured)
_OVERHEAD = 450


def window_key(ids: Ids) -> bytes:
    """A 16-byte digest of a window's token ids.

    The ids decide the vector, not the text: texts that differ only in what the tokenizer drops
    share one entry.
    """
    return hashlib.blake2b(np.ascontiguousarray(ids).tobytes(), digest_size=16).digest()


class Tenants:
    """Gives all clients the same entries, or each client its own.

    A client that shares entries with others can check a guess: ``x-cache`` or the time of an
    answer reveals whether one of them sent the same text.

    Args:
        separate: whether each client has its own entries.
        aliases: stand for clients in the names of entries; a client without an alias appears by its
            own name.
    """

    def __init__(self, *, separate: bool, aliases: Mapping[str, bytes] | None = None) -> None:
        self._separate = separate
        self._aliases = aliases or {}

    @property
    def current(self) -> bytes:
        """16 bytes for the client of the running task; empty if all clients share entries."""
        if not self._separate:
            return b""
        name = clients.current().name
        alias = self._aliases.get(name) or b"name " + name.encode()
        return hashlib.blake2b(alias, digest_size=16, person=b"tenant").digest()

    def own(self, keys: Sequence[bytes]) -> list[bytes]:
        """Names of the current client's entries, 16 bytes each.

        Args:
            keys: ``window_key`` of each window; may repeat.
        """
        tenant = self.current
        if not tenant:
            return list(keys)
        return [hashlib.blake2b(key, key=tenant, digest_size=16).digest() for key in keys]


SHARED = Tenants(separate=False)


@dataclass(frozen=True, slots=True)
class _Entry:
    vector: Vectors
    sure: bool


def _size(entry: _Entry) -> int:
    return entry.vector.nbytes + _OVERHEAD


class ProcessCache:
    """Least-recently-used vectors with a limit in bytes; thread-safe.

    Args:
        capacity: most bytes to keep; 0 keeps nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._entries = LRUCache[bytes, _Entry](capacity, _size)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        """Bytes that the kept vectors take, entries included."""
        return int(self._entries.currsize)

    def get(self, keys: Sequence[bytes], *, sure: bool = False) -> list[Vectors | None]:
        """The vectors; None for each that is not kept.

        Args:
            sure: whether to leave out entries that are not sure.
        """
        with self._lock:
            found = [self._entries.get(key) for key in keys]
        return [
            None if entry is None or (sure and not entry.sure) else entry.vector for entry in found
        ]

    def put(self, keys: Sequence[bytes], vectors: Vectors, *, sure: bool = True) -> None:
        """Keep ``vectors`` ``[keys, dimensions]``; evict the least recently used.

        Args:
            sure: whether they were computed here, or by a process that proved to have the secret.
        """
        with self._lock:
            for key, vector in zip(keys, vectors, strict=True):
                held = self._entries.get(key)
                if held is None or (sure and not held.sure):
                    # a copy, because a view would keep the whole batch alive
                    entry = _Entry(np.array(vector), sure)
                    if _size(entry) <= self._entries.maxsize:
                        self._entries[key] = entry


_stored: ContextVar[bool] = ContextVar("lasting", default=False)


def is_stored() -> bool:
    """Whether the running task's vectors will be stored."""
    return _stored.get()


@contextmanager
def stored() -> Iterator[None]:
    """Mark the vectors of the block, and of tasks that it starts, as stored."""
    token = _stored.set(True)
    try:
        yield
    finally:
        _stored.reset(token)


if TYPE_CHECKING:
    from service.embedding.cache.shared import SharedCache


class Source(StrEnum):
    """Where a window's vector came from."""

    PROCESS = "process"
    REDIS = "redis"
    FLIGHT = "flight"
    ENGINE = "engine"


Known = tuple[Vectors, Source]
Found = dict[bytes, Known]
Compute = Callable[[Sequence[bytes]], Awaitable[Vectors]]

# A request waits only for one that computes at most so many windows, or so many times its own. A
# short text that is also in a long request would wait for all of that.
FEW_WINDOWS = 16
_TIMES = 4


@dataclass(frozen=True, slots=True)
class _Flight:
    """The computation of a window; it lands with all windows of its request.

    Attributes:
        landing: None if the request failed.
        windows: number of windows that land together.
    """

    landing: asyncio.Future[Known | None]
    windows: int


class Cache:
    """Finds each vector in the cheapest layer, and lets equal requests wait for one computation.

    Args:
        process: first layer.
        shared: second layer, if there is one.
    """

    def __init__(self, process: ProcessCache, shared: SharedCache | None = None) -> None:
        self.process = process
        self.shared = shared
        self._flights: dict[bytes, _Flight] = {}

    async def get(self, keys: Sequence[bytes], compute: Compute, *, lasting: bool = False) -> Found:
        """The vectors of all keys.

        Args:
            keys: may repeat.
            compute: returns vectors ``[missing, dimensions]`` of its keys. It receives the keys
                that no layer has and no request of a similar size is computing.
            lasting: whether the vectors will be stored. If so, none comes from a shared layer
                without authentication, directly or indirectly.
        """
        wanted = list(dict.fromkeys(keys))
        sure = lasting and not self._shared_is_sure
        found = self._held(wanted, sure)
        most = max(FEW_WINDOWS, _TIMES * len(wanted))
        while missing := [key for key in wanted if key not in found]:
            theirs = {
                key: flight.landing
                for key in missing
                if (flight := self._flights.get(key)) is not None and flight.windows <= most
            }
            mine = [key for key in missing if key not in theirs]
            if mine:
                found |= await self._fly(mine, compute, sure)
            for key, landing in theirs.items():
                landed = await asyncio.shield(landing)
                # None: the other request failed or was cancelled. The next turn computes the vector
                # here, unless it was kept before.
                if landed is not None and not (sure and landed[1] is Source.REDIS):
                    found[key] = (landed[0], Source.FLIGHT)
                else:
                    found |= self._held([key], sure)
        return found

    @property
    def _shared_is_sure(self) -> bool:
        return self.shared is None or self.shared.signed

    def keep(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Put computed vectors ``[keys, dimensions]`` into every layer."""
        self.process.put(keys, vectors)
        if self.shared is not None:
            self.shared.put(keys, vectors)

    def _held(self, keys: Sequence[bytes], sure: bool) -> Found:
        held = zip(keys, self.process.get(keys, sure=sure), strict=True)
        return {key: (vector, Source.PROCESS) for key, vector in held if vector is not None}

    async def _fly(self, keys: list[bytes], compute: Compute, sure: bool) -> Found:
        loop = asyncio.get_running_loop()
        flights = {key: _Flight(loop.create_future(), len(keys)) for key in keys}
        self._flights |= flights
        found: Found = {}
        try:
            found = {} if sure else await self._from_shared(keys)
            missing = [key for key in keys if key not in found]
            if missing:
                vectors = await compute(missing)
                self.keep(missing, vectors)
                found |= {k: (v, Source.ENGINE) for k, v in zip(missing, vectors, strict=True)}
            return found
        finally:
            for key, flight in flights.items():
                # a smaller request may have taken its place
                if self._flights.get(key) is flight:
                    del self._flights[key]
                flight.landing.set_result(found.get(key))

    async def _from_shared(self, keys: list[bytes]) -> Found:
        if self.shared is None:
            return {}
        values = zip(keys, await self.shared.get(keys), strict=True)
        found = {key: vector for key, vector in values if vector is not None}
        if found:
            vectors = np.stack(list(found.values()))
            self.process.put(list(found), vectors, sure=self._shared_is_sure)
        return {key: (vector, Source.REDIS) for key, vector in found.items()}
