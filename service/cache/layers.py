"""Process over Redis, and one computation for identical windows in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum

import numpy as np

from service.cache.process import ProcessCache
from service.cache.shared import SharedCache
from service.documents.pooling import Vectors


class Source(StrEnum):
    """Where a window's vector came from."""

    PROCESS = "process"
    REDIS = "redis"
    FLIGHT = "flight"
    ENGINE = "engine"


Found = dict[bytes, tuple[Vectors, Source]]
Compute = Callable[[Sequence[bytes]], Awaitable[Vectors]]


class Cache:
    """Finds each vector where it is cheapest, and computes nothing twice.

    Args:
        process: the first layer.
        shared: the second, if there is one.
    """

    def __init__(self, process: ProcessCache, shared: SharedCache | None = None) -> None:
        self.process = process
        self.shared = shared
        self._flights: dict[bytes, asyncio.Future[Vectors | None]] = {}

    async def get(self, keys: Sequence[bytes], compute: Compute) -> Found:
        """The vectors of all keys.

        Args:
            keys: may repeat.
            compute: vectors ``[missing, dimensions]`` of the keys that it is given; called for keys
                that no layer holds and no other request computes at this moment.
        """
        wanted = list(dict.fromkeys(keys))
        found = self._held(wanted)
        while missing := [key for key in wanted if key not in found]:
            theirs = {key: self._flights[key] for key in missing if key in self._flights}
            mine = [key for key in missing if key not in theirs]
            if mine:
                found |= await self._fly(mine, compute)
            for key, flight in theirs.items():
                vector = await asyncio.shield(flight)
                # None: its request failed or was given up, so the next turn computes it here,
                # unless it was kept before that
                if vector is not None:
                    found[key] = (vector, Source.FLIGHT)
                else:
                    found |= self._held([key])
        return found

    def keep(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Hold computed vectors ``[keys, dimensions]`` in every layer."""
        self.process.put(keys, vectors)
        if self.shared is not None:
            self.shared.put(keys, vectors)

    def _held(self, keys: Sequence[bytes]) -> Found:
        held = zip(keys, self.process.get(keys), strict=True)
        return {key: (vector, Source.PROCESS) for key, vector in held if vector is not None}

    async def _fly(self, keys: list[bytes], compute: Compute) -> Found:
        loop = asyncio.get_running_loop()
        flights = {key: loop.create_future() for key in keys}
        self._flights |= flights
        found: Found = {}
        try:
            found = await self._from_shared(keys)
            missing = [key for key in keys if key not in found]
            if missing:
                vectors = await compute(missing)
                self.keep(missing, vectors)
                found |= {k: (v, Source.ENGINE) for k, v in zip(missing, vectors, strict=True)}
            return found
        finally:
            for key, flight in flights.items():
                del self._flights[key]
                flight.set_result(found[key][0] if key in found else None)

    async def _from_shared(self, keys: list[bytes]) -> Found:
        if self.shared is None:
            return {}
        values = zip(keys, await self.shared.get(keys), strict=True)
        found = {key: vector for key, vector in values if vector is not None}
        if found:
            self.process.put(list(found), np.stack(list(found.values())))
        return {key: (vector, Source.REDIS) for key, vector in found.items()}
