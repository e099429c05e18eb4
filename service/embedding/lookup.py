"""Where an embedder gets the vectors of windows from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.embedding.batching.batcher import Batcher
from service.embedding.cache import lasting
from service.embedding.cache.layers import Cache, Source
from service.embedding.cache.tenants import SHARED, Tenants
from service.tracing.stages import Stage
from windowing.pooling import Vectors
from windowing.windows import Ids


@dataclass(slots=True)
class Found:
    """Vectors of windows, in the order in which they were asked for.

    Attributes:
        vectors: float32 ``[dimensions]``, unit length, one a window.
        sources: where each came from.
        looking: seconds that reading the cache took.
        queued: seconds that those computed for this call waited.
        computing: seconds that computing them took.
    """

    vectors: list[Vectors]
    sources: list[Source]
    looking: float = 0.0
    queued: float = 0.0
    computing: float = 0.0


class CachedVectors:
    """Vectors of windows from the cache; the batcher computes those that are missing.

    Args:
        cache: vectors of windows seen before.
        batcher: computes windows.
        tenants: who shares entries of the cache with whom.
    """

    def __init__(self, cache: Cache, batcher: Batcher, tenants: Tenants = SHARED) -> None:
        self._cache = cache
        self._batcher = batcher
        self._tenants = tenants

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait for the engine."""
        return self._batcher.queued_tokens

    async def get(self, keys: Sequence[bytes], windows: Sequence[Ids], deadline: float) -> Found:
        """Vectors of windows.

        Args:
            keys: ``window_key`` of each window; may repeat.
            windows: model inputs, special tokens included.
            deadline: on ``time.monotonic``'s clock.

        Raises:
            OverloadedError, DeadlineError, EngineFailedError: from the batcher.
        """
        names = self._tenants.own(keys)
        ids = dict(zip(names, windows, strict=True))
        result = Found([], [])

        async def compute(missing: Sequence[bytes]) -> Vectors:
            lookup.stop()

            # what was done of a request that failed need not be done again when it is repeated
            def keep(positions: Sequence[int], vectors: Vectors) -> None:
                self._cache.keep([missing[position] for position in positions], vectors)

            work = [ids[key] for key in missing]
            computed = await self._batcher.compute(work, deadline, keep)
            result.queued += computed.queued
            result.computing += computed.computing
            return computed.vectors

        with Stage("cache") as lookup:
            held = await self._cache.get(names, compute, lasting=lasting.current())
            for name in names:
                vector, source = held[name]
                result.vectors.append(vector)
                result.sources.append(source)
            counts = {f"docsplit.cache.{s}": result.sources.count(s) for s in Source}
            lookup.note(counts)
        result.looking = lookup.seconds
        return result
