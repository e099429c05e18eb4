"""The second layer: Redis, shared by all replicas. Every error is a miss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from service.cache.breaker import Breaker
from service.cache.codec import pack, unpack
from service.documents.pooling import Vectors
from service.tracing.stages import Stage

log = structlog.get_logger("docsplit.cache")

_CONNECTIONS = 16
_AT_ONCE = 512
_WAITING_WRITES = 8192


class SharedCache:
    """Vectors in Redis, read by pipelined MGET, written behind the answer.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        prefix: of every key; names the revision and the arithmetic.
        dimensions: of the vectors.
        ttl: seconds until an entry expires.
        timeout: seconds that connecting, and each call, may take.
        on_error: called with ``read``, ``write``, ``damaged`` or ``dropped``.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        dimensions: int,
        ttl: int,
        timeout: float,
        on_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        # redis-py's defaults block for over 40 s on a frozen server
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=timeout,
            socket_connect_timeout=timeout,
            socket_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis: Any = Redis(connection_pool=pool)
        self._prefix = prefix.encode()
        self._dimensions = dimensions
        self._ttl = ttl
        self._timeout = timeout
        self._on_error = on_error
        self._breaker = Breaker()
        self._writes: asyncio.Queue[tuple[bytes, Vectors]] = asyncio.Queue(_WAITING_WRITES)
        self._writer = asyncio.create_task(self._write_behind())

    @property
    def healthy(self) -> bool:
        """False while Redis is left alone after failures."""
        return self._breaker.closed

    async def get(self, keys: Sequence[bytes]) -> list[Vectors | None]:
        """The vectors, None where one is not held, damaged, or Redis does not answer."""
        if not keys or not self._breaker.admits():
            return [None] * len(keys)
        with Stage("redis", client=True) as stage:
            stage.note({"db.system.name": "redis", "db.operation.name": "MGET"})
            values = await self._mget(keys, stage)
        return [None if value is None else self._unpack(value) for value in values]

    async def _mget(self, keys: Sequence[bytes], stage: Stage) -> list[bytes | None]:
        names = [self._prefix + key for key in keys]
        try:
            async with asyncio.timeout(2 * self._timeout), self._redis.pipeline(False) as pipe:
                for at in range(0, len(names), _AT_ONCE):
                    pipe.mget(names[at : at + _AT_ONCE])
                values = [value for part in await pipe.execute() for value in part]
        except (RedisError, OSError, TimeoutError) as error:
            self._failed("read", error)
            stage.fail(error)
            return [None] * len(keys)
        self._breaker.succeeded()
        return values

    def put(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Write ``vectors`` ``[keys, dimensions]`` soon; dropped when too many wait already."""
        for key, vector in zip(keys, vectors, strict=True):
            try:
                self._writes.put_nowait((key, vector))
            except asyncio.QueueFull:
                self._on_error("dropped")

    async def close(self) -> None:
        """Write what waits, if Redis answers in time, and disconnect."""
        try:
            async with asyncio.timeout(2 * self._timeout):
                await self._writes.join()
        except TimeoutError:
            pass
        self._writer.cancel()
        await asyncio.gather(self._writer, return_exceptions=True)
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    def _unpack(self, value: bytes) -> Vectors | None:
        vector = unpack(value, self._dimensions)
        if vector is None:
            self._on_error("damaged")
        return vector

    async def _write_behind(self) -> None:
        while True:
            entries = [await self._writes.get()]
            while len(entries) < _AT_ONCE and not self._writes.empty():
                entries.append(self._writes.get_nowait())
            await self._write(entries)
            for _ in entries:
                self._writes.task_done()

    async def _write(self, entries: list[tuple[bytes, Vectors]]) -> None:
        if not self._breaker.admits():
            self._on_error("dropped")
            return
        try:
            async with asyncio.timeout(2 * self._timeout), self._redis.pipeline(False) as pipe:
                for key, vector in entries:
                    pipe.set(self._prefix + key, pack(vector), ex=self._ttl)
                await pipe.execute()
        except ResponseError as error:
            # a full Redis refuses writes and still answers reads
            self._on_error("write")
            log.warning("cache_refused", reason=type(error).__name__)
        except (RedisError, OSError, TimeoutError) as error:
            self._failed("write", error)
        else:
            self._breaker.succeeded()

    def _failed(self, operation: str, error: Exception) -> None:
        was_closed = self._breaker.closed
        self._breaker.failed()
        self._on_error(operation)
        if was_closed and not self._breaker.closed:
            log.warning("cache_degraded", reason=type(error).__name__)
