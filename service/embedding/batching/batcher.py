"""Worker threads that take batches from the queue and run the engine."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from docsplit.windowing.vectors import pad
from service.embedding.batching import clients
from service.embedding.batching.clients import overflow
from service.embedding.batching.queue import BatchReport, Ids, Job, Model, Window, WindowQueue
from service.embedding.batching.shares import Shares, Turn
from service.errors import DeadlineError, EngineFailedError, OverloadedError, TooMuchError
from service.tracing import stages

if TYPE_CHECKING:
    from docsplit.engines.interface import Engine

# Engine seconds after which a batch's weight falls to 1/e. A batch weighs by its time. Otherwise
# many short requests, whose cost is not their tokens, would hide the rate of long ones.
HORIZON = 2.0


class Rate:
    """Tokens per second of engine time; 0 before the first batch.

    Attributes:
        fastest: that of the fastest batch.
    """

    def __init__(self) -> None:
        self.fastest = 0.0
        self._tokens = 0.0
        self._seconds = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Count one batch."""
        seconds = max(seconds, 1e-6)
        self.fastest = max(self.fastest, tokens / seconds)
        kept = math.exp(-seconds / HORIZON)
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + seconds

    @property
    def value(self) -> float:
        """The current estimate."""
        return self._tokens / self._seconds if self._seconds else 0.0


# a hanging engine never returns, but the process must still end
_JOIN_SECONDS = 5.0


# Receives computed vectors of a request's windows, with the windows' positions.
Partial = Callable[[Sequence[int], NDArray[np.float32]], None]


@dataclass(frozen=True, slots=True)
class Computed:
    """Vectors ``[windows, dimensions]`` and their times, in seconds."""

    vectors: NDArray[np.float32]
    queued: float
    computing: float


class Batcher:
    """Batches windows for an engine, and for other models that share its cores.

    Args:
        engine: computes ``engine.streams`` batches at once.
        batch_tokens: most padded tokens in a batch.
        queue_tokens: tokens of one client that may wait while no other client waits. The tokens of
            all clients may reach twice that; see ``overflow``. The batcher refuses work beyond,
            unless nothing waits.
        age_limit: see ``WindowQueue``.
        pad_token_id: fills shorter windows.
        report: called from a worker thread after every batch.
        shares: of the cores, if other bundles compute on them too; ``weight`` is the batcher's.

    Attributes:
        model: the engine's model, for work that names no other.
        batch_tokens: most padded tokens in a batch.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        batch_tokens: int,
        queue_tokens: int,
        age_limit: float,
        pad_token_id: int,
        report: Callable[[BatchReport], None] = lambda _: None,
        shares: Shares | None = None,
        weight: float = 1.0,
    ) -> None:
        self.model = Model(engine, pad_token_id, report)
        self.batch_tokens = batch_tokens
        self._busy = 0
        self._capacity = 2 * queue_tokens
        self._queue = WindowQueue(batch_tokens, age_limit)
        self._changed = threading.Condition()
        self._closed = False
        self._rate = Rate()
        self._started: dict[int, float] = {}
        self._shares = shares or Shares(engine.streams)
        self._share = self._shares.join(weight, lambda: self._queue.tokens > 0)
        self._workers = [
            threading.Thread(target=self._work, name=f"engine-{i}", daemon=True)
            for i in range(engine.streams)
        ]
        for worker in self._workers:
            worker.start()

    @property
    def queued_tokens(self) -> int:
        """Waiting tokens, without padding."""
        return self._queue.tokens

    @property
    def queue_age(self) -> float:
        """Seconds that the oldest waiting job has waited."""
        with self._changed:
            oldest = self._queue.oldest()
        return 0.0 if oldest is None else time.monotonic() - oldest.arrived

    @property
    def tokens_per_second(self) -> float:
        """Measured rate of the busy engine, all streams together; 0 before the first batch."""
        return self._rate.value

    @property
    def longest_batch(self) -> float:
        """Seconds since the oldest running batch began; 0 when none runs."""
        started = min(list(self._started.values()), default=None)
        return 0.0 if started is None else time.monotonic() - started

    async def compute(
        self,
        windows: Sequence[Ids],
        deadline: float,
        partial: Partial = lambda _positions, _vectors: None,
        model: Model | None = None,
    ) -> Computed:
        """Vectors of windows, in their order; the work counts for the task's client.

        Args:
            windows: model inputs, special tokens included.
            deadline: on ``time.monotonic``'s clock.
            partial: receives the computed vectors if the rest fails, is late or cancelled.
            model: computes them instead of the engine; it has as many streams.

        Raises:
            OverloadedError: too much work of this client, or of all, is waiting.
            DeadlineError: ``deadline`` passed.
            TooMuchError: the engine cannot finish before ``deadline``, whatever else waits.
            EngineFailedError: the engine failed on a batch of these windows.
        """
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[None] = loop.create_future()

        def settle(error: BaseException | None) -> None:
            if finished.done():
                return
            if error is None:
                finished.set_result(None)
            else:
                finished.set_exception(error)

        def done(error: BaseException | None) -> None:
            # the loop may have closed during the last batch
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, error)

        job = Job(windows, deadline, time.monotonic(), done, clients.current(), model or self.model)
        self._admit(job)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await finished
        except TimeoutError as error:
            raise DeadlineError from error
        finally:
            with self._changed:
                self._queue.drop(job)
                computed = {i: v for i, v in enumerate(job.vectors) if v is not None}
            if computed and job.left:
                partial(list(computed), np.stack(list(computed.values())))
            _trace(job, sys.exception())
        vectors = np.stack([v for v in job.vectors if v is not None])
        started = job.first_taken if job.first_taken is not None else job.arrived
        return Computed(vectors, started - job.arrived, time.monotonic() - started)

    def close(self) -> None:
        """Wait for the running batches, then stop the workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(_JOIN_SECONDS)
        self._shares.leave(self._share)

    def _admit(self, job: Job) -> None:
        with self._changed:
            total, held = self._queue.tokens, self._queue.held(job.client)
            too_much = overflow(self._capacity, total, held, job.waiting_tokens)
            if total and too_much > 0:
                raise OverloadedError(max(1.0, self._seconds_until(too_much, total, job.client)))
            late = self._lateness(job) if total else 0.0
            if late > 0:
                raise OverloadedError(max(1.0, late))
            self._queue.add(job)
            self._changed.notify_all()

    def _lateness(self, job: Job) -> float:
        """Seconds by which queueing makes a job late that would otherwise meet its deadline."""
        rate, allowed = self._rate.value, job.deadline - job.arrived
        if not rate or job.waiting_tokens / rate > allowed:
            return 0.0
        return self._queue.until_done(job, rate) - allowed

    def _seconds_until(self, too_much: int, total: int, client: clients.Client) -> float:
        """Seconds until the queue has room. The service counts running work like queued work."""
        rate = self._rate.value
        return min(too_much / (1 + self._queue.share(client)), total) / rate if rate else 1.0

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not len(self._queue):
                    self._changed.wait()
                if self._closed:
                    return
            with self._share.turn(lambda: self._closed) as turn:
                self._next(turn)

    def _next(self, turn: Turn) -> None:
        """Take and compute a batch, if there is still work."""
        with self._changed:
            if self._closed or not len(self._queue):
                return
            now = time.monotonic()
            late = self._queue.expire(now, self._rate.value)
            oversized = self._queue.oversized(now, self._rate.fastest)
            batch = self._queue.take(now)
            engine = self._engine_for(batch)
            self._busy += 1
        for job in late:
            job.done(DeadlineError())
        for job in oversized:
            job.done(TooMuchError(job.tokens, self._rate.fastest, job.deadline - job.arrived))
        if batch:
            turn.compute(engine.streams)
        for window, error in self._run(batch, engine) if batch else ():
            self._fail(window, error)
        with self._changed:
            self._busy -= 1

    def _engine_for(self, batch: list[Window]) -> Engine:
        model = self._model_of(batch)
        if model.single_stream is None or self._busy or len(self._queue):
            return model.engine
        return model.single_stream

    def _model_of(self, batch: list[Window]) -> Model:
        return (batch[0].job.model if batch else None) or self.model

    def _run(self, batch: list[Window], engine: Engine) -> list[tuple[Window, Exception]]:
        """Compute a batch. Halve a batch that raises, so that only the faulty windows fail.

        Returns:
            The windows that failed; all others have their vectors.
        """
        started = time.monotonic()
        vectors = self._call(batch, engine)
        if isinstance(vectors, Exception):
            return self._split(batch, vectors, engine)
        seconds = time.monotonic() - started
        finite = np.isfinite(vectors).all(axis=1)
        tokens = sum(window.length for window in batch)
        report = BatchReport(len(batch), tokens, len(batch) * batch[0].padded, seconds)
        self._model_of(batch).report(report)
        work = sum(window.work for window in batch)
        good = [batch[row] for row in np.flatnonzero(finite)]
        self._settle(good, vectors[finite], work, seconds / engine.streams)
        unfit = ValueError("the vector is not finite")
        return [(batch[row], unfit) for row in np.flatnonzero(~finite)]

    def _call(self, batch: list[Window], engine: Engine) -> NDArray[np.float32] | Exception:
        thread = threading.get_ident()
        self._started[thread] = time.monotonic()
        try:
            rows = [window.ids for window in batch]
            vectors = engine.run(*pad(rows, self._model_of(batch).pad_token_id, batch[0].padded))
            if vectors.ndim != 2 or len(vectors) != len(batch):
                raise ValueError(f"{len(batch)} windows gave shape {vectors.shape}")
        except Exception as error:  # noqa: BLE001 - runtimes share no base class of exceptions
            return error
        finally:
            del self._started[thread]
        return vectors

    def _split(
        self, batch: list[Window], error: Exception, engine: Engine
    ) -> list[tuple[Window, Exception]]:
        if len(batch) == 1:
            return [(batch[0], error)]
        alive = [window for window in batch if not window.job.dropped]
        half = len(alive) // 2
        parts = [part for part in (alive[:half], alive[half:]) if part]
        return [failed for part in parts for failed in self._run(part, engine)]

    def _settle(
        self, batch: list[Window], vectors: NDArray[np.float32], tokens: int, seconds: float
    ) -> None:
        ready: list[Job] = []
        with self._changed:
            self._rate.add(tokens, seconds)
            for window, vector in zip(batch, vectors, strict=True):
                job = window.job
                job.vectors[window.index] = vector
                job.left -= 1
                if job.left == 0 and not job.dropped:
                    ready.append(job)
        for job in ready:
            job.done(None)

    def _fail(self, window: Window, error: Exception) -> None:
        failure = EngineFailedError(f"{type(error).__name__} in the engine")
        failure.__cause__ = error
        with self._changed:
            self._queue.drop(window.job)
        window.job.done(failure)


def _trace(job: Job, error: BaseException | None) -> None:
    """Record the spans of a job that has ended in any way."""
    now = time.monotonic()
    size = {"docsplit.windows": len(job.windows), "docsplit.tokens": sum(map(len, job.windows))}
    taken = job.first_taken
    if taken is None:
        stages.record("queue", job.arrived, now, size, error)
    else:
        stages.record("queue", job.arrived, taken, size)
        stages.record("infer", taken, now, size, error)
