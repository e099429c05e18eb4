"""Get the vectors of windows for an embedder."""

from collections.abc import Sequence
from dataclasses import dataclass

from docsplit.windowing.pooling import Vectors
from docsplit.windowing.windows import Ids
from service.embedding.batching.batcher import Batcher
from service.embedding.cache import lasting
from service.embedding.cache.layers import Cache, Source
from service.embedding.cache.tenants import SHARED, Tenants
from service.tracing.stages import Stage


@dataclass(slots=True)
class Found:
    """Vectors of windows, in the order of the request.

    Attributes:
        vectors: float32 ``[dimensions]``, unit length, one per window.
        sources: origin of each vector.
        looking: seconds spent reading the cache.
        queued: seconds that the windows computed for this call waited.
        computing: seconds spent computing them.
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
        tenants: decides which clients share entries of the cache.
    """

    def __init__(self, cache: Cache, batcher: Batcher, tenants: Tenants = SHARED) -> None:
        self._cache = cache
        self._batcher = batcher
        self._tenants = tenants

    @property
    def queued_tokens(self) -> int:
        """Tokens waiting for the engine."""
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

            # keep the vectors of a failed request, so that a repetition need not compute them
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
