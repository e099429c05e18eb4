"""The second layer: Redis, shared by all replicas. Every error counts as a miss."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from docsplit.windowing.pooling import Vectors
from service.embedding.cache.codec import Codec, Fault
from service.tracing.stages import Stage


class Breaker:
    """Keeps callers away from a server that fails.

    It is closed until ``failures`` calls in a row fail. Then it opens for ``rest`` seconds. After
    that, one caller may try. Every failed trial doubles the rest, up to ``longest``.

    Args:
        failures: failed calls in a row that open it.
        rest: seconds of the first rest.
        longest: seconds of the longest rest.
    """

    def __init__(
        self,
        failures: int = 3,
        rest: float = 0.5,
        longest: float = 8.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allowed = failures
        self._first_rest = rest
        self._longest = longest
        self._clock = clock
        self._in_a_row = 0
        self._rest = rest
        self._open_until = 0.0

    @property
    def closed(self) -> bool:
        """Whether the server counts as working."""
        return self._in_a_row < self._allowed

    def admits(self) -> bool:
        """Whether to call now; while open, true for one caller after each rest."""
        if self.closed:
            return True
        now = self._clock()
        if now < self._open_until:
            return False
        self._open_until = now + self._rest
        return True

    def succeeded(self) -> None:
        """Close the breaker."""
        self._in_a_row = 0
        self._rest = self._first_rest

    def failed(self) -> None:
        """Count a failure; open after enough failures."""
        self._in_a_row += 1
        if self._in_a_row == self._allowed:
            self._open_until = self._clock() + self._rest
        elif not self.closed:
            self._rest = min(2 * self._rest, self._longest)
            self._open_until = self._clock() + self._rest


log = structlog.get_logger("docsplit.cache")

_CONNECTIONS = 16
_AT_ONCE = 512
_WAITING_WRITES = 8192
_SECONDS_BETWEEN_TRIALS = 1.0
# Like MGET, but reads a limited number of bytes of each value: a huge value costs no memory here.
# A missing value is empty, and a value of another type becomes an error in its place.
_READ = """
local found = {}
for place, name in ipairs(KEYS) do
  found[place] = redis.pcall('GETRANGE', name, 0, ARGV[1])
end
return found
"""


class SharedCache:
    """Vectors in Redis: a pipelined script reads them, a task writes them after the answer.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        prefix: start of every key; names the revision and the arithmetic.
        codec: encodes values, and checks the values that it reads.
        ttl: seconds until an entry expires.
        timeout: seconds that connecting, and each call, may take.
        on_error: called with ``read``, ``write``, ``damaged``, ``forged`` or ``dropped``.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        codec: Codec,
        ttl: int,
        timeout: float,
        on_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        # with redis-py's defaults, a frozen server blocks for over 40 s
        pool = BlockingConnectionPool.from_url(
            url,
            # which servers before Redis 6 and many proxies answer, too
            protocol=2,
            max_connections=_CONNECTIONS,
            timeout=timeout,
            socket_connect_timeout=timeout,
            socket_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis: Any = Redis(connection_pool=pool)
        self._prefix = prefix.encode()
        self._codec = codec
        self._ttl = ttl
        self._timeout = timeout
        self._on_error = on_error
        self._breaker = Breaker()
        self._writes: asyncio.Queue[tuple[bytes, Vectors]] = asyncio.Queue(_WAITING_WRITES)
        self._writer = asyncio.create_task(self._write_behind())
        self._trials: asyncio.Task[None] | None = None

    @property
    def signed(self) -> bool:
        """Whether values are authenticated."""
        return self._codec.signed

    @property
    def healthy(self) -> bool:
        """False while the service does not use Redis after failures."""
        return self._breaker.closed

    async def get(self, keys: Sequence[bytes]) -> list[Vectors | None]:
        """The vectors; None for each that is missing or faulty, or if Redis does not answer."""
        if not keys or not self._breaker.admits():
            return [None] * len(keys)
        with Stage("redis", client=True) as stage:
            stage.note({"db.system.name": "redis", "db.operation.name": "EVAL"})
            names = [self._prefix + key for key in keys]
            values = await self._read(names, stage)
        return [self._unpack(*pair) for pair in zip(names, values, strict=True)]

    async def _read(self, names: list[bytes], stage: Stage) -> list[Any]:
        parts = [names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE)]
        try:
            async with asyncio.timeout(2 * self._timeout), self._redis.pipeline(False) as pipe:
                for part in parts:
                    # one byte more than a value has, to notice a longer value
                    pipe.eval(_READ, len(part), *part, self._codec.value_bytes)
                answers = await pipe.execute()
            values = _values(answers, [len(part) for part in parts])
        except Exception as error:  # noqa: BLE001 the parser may raise anything on what comes
            self._failed("read", error)
            stage.fail(error)
            return [None] * len(names)
        self._breaker.succeeded()
        return values

    def put(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Write ``vectors`` ``[keys, dimensions]`` soon; drop them if too many already wait."""
        for key, vector in zip(keys, vectors, strict=True):
            try:
                self._writes.put_nowait((key, vector))
            except asyncio.QueueFull:
                self._on_error("dropped")

    async def close(self) -> None:
        """Write the waiting vectors if Redis answers in time, and disconnect."""
        try:
            async with asyncio.timeout(2 * self._timeout):
                await self._writes.join()
        except TimeoutError:
            pass
        tasks = [task for task in (self._writer, self._trials) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    def _unpack(self, name: bytes, value: object) -> Vectors | None:
        if value is None or value == b"":
            return None
        found = self._codec.unpack(name, value)
        if isinstance(found, Fault):
            self._on_error(found)
            return None
        return found

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
                    name = self._prefix + key
                    pipe.set(name, self._codec.pack(name, vector), ex=self._ttl)
                await pipe.execute()
        except ResponseError as error:
            # a full Redis refuses writes, but still answers reads
            self._on_error("write")
            log.warning("cache_refused", reason=type(error).__name__)
        except Exception as error:  # noqa: BLE001 the writer must outlive whatever is answered
            self._failed("write", error)
        else:
            self._breaker.succeeded()

    def _failed(self, operation: str, error: Exception) -> None:
        was_closed = self._breaker.closed
        self._breaker.failed()
        self._on_error(operation)
        if was_closed and not self._breaker.closed:
            log.warning("cache_degraded", reason=type(error).__name__)
            # without requests nothing else would notice that Redis is back
            if self._trials is None or self._trials.done():
                self._trials = asyncio.create_task(self._try_until_it_answers(), context=Context())

    async def _try_until_it_answers(self) -> None:
        while not self.healthy:
            await asyncio.sleep(_SECONDS_BETWEEN_TRIALS)
            await self.get([b""])


def _values(answers: Any, lengths: Sequence[int]) -> list[Any]:
    """The elements of the script's answers.

    Raises:
        TypeError: an answer is not a list, or its length differs from the question's.
    """
    for answer, length in zip(answers, lengths, strict=True):
        if not isinstance(answer, list) or len(answer) != length:
            raise TypeError("the script's answer has another form")
    return [value for answer in answers for value in answer]
