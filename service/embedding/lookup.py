"""Get the vectors of windows for an embedder."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from docsplit.windowing.pooling import Vectors
from docsplit.windowing.windows import Ids
from service.embedding.batching import clients
from service.embedding.batching.batcher import Batcher
from service.embedding.cache import layers
from service.embedding.cache.layers import SHARED, Cache, Source, Tenants
from service.errors import OverloadedError
from service.keys.ring import Bucket
from service.tracing.stages import Stage

_current: ContextVar[Bucket | None] = ContextVar("charged", default=None)


def payer() -> Bucket | None:
    """What the running work is charged to."""
    return _current.get()


async def out_of_debt() -> None:
    """Wait until the key of the running work may have more tokens computed."""
    bucket = _current.get()
    if bucket is not None:
        await asyncio.sleep(bucket.wait(0.0))


@contextmanager
def charging(tokens: Bucket | None) -> Iterator[None]:
    """Charge the block, and tasks that it starts, to ``tokens``."""
    token = _current.set(tokens)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def charged(tokens: int) -> Iterator[None]:
    """Charge the running request for the work of the block.

    Background work is free, even if a request started it.

    Args:
        tokens: number of tokens that the model reads.
    """
    bucket = None if clients.current() is clients.BACKGROUND else _current.get()
    if bucket is None:
        yield
        return
    bucket.take(tokens)
    try:
        yield
    except OverloadedError:
        bucket.take(-tokens)
        raise


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
            held = await self._cache.get(names, compute, lasting=layers.is_stored())
            for name in names:
                vector, source = held[name]
                result.vectors.append(vector)
                result.sources.append(source)
            counts = {f"docsplit.cache.{s}": result.sources.count(s) for s in Source}
            lookup.note(counts)
        result.looking = lookup.seconds
        return result
