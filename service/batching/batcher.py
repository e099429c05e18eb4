"""Worker threads that carry batches from the queue through the engine."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.batching.queue import Ids, Job, Window, WindowQueue
from service.engines.interface import Engine
from service.tracing import stages

# a wedged engine never returns, and must not keep the process from ending
_JOIN_SECONDS = 5.0


class OverloadedError(Exception):
    """The queue is full.

    Attributes:
        retry_after: seconds until it should have room, by the measured rate.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the queue is full; try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class DeadlineError(Exception):
    """The deadline passed before the work was done."""


class EngineFailedError(Exception):
    """The engine raised, or returned vectors that are not finite."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch, for metrics: sizes in windows and tokens, time in seconds."""

    windows: int
    tokens: int
    padded_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Computed:
    """Vectors ``[windows, dimensions]`` and where the time went, in seconds."""

    vectors: NDArray[np.float32]
    queued: float
    computing: float


class Batcher:
    """Batches windows for an engine.

    Args:
        engine: computes ``engine.streams`` batches at once.
        batch_tokens: padded tokens a batch, at most.
        queue_tokens: tokens that may wait; work beyond is refused, unless nothing waits.
        age_limit: seconds after which waiting work goes first.
        pad_token_id: fills up shorter windows.
        report: called from a worker thread after every batch.
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
    ) -> None:
        self._engine = engine
        self._limit = queue_tokens
        self._pad = pad_token_id
        self._report = report
        self._queue = WindowQueue(batch_tokens, age_limit)
        self._changed = threading.Condition()
        self._closed = False
        self._tokens_per_second = 0.0
        self._started: dict[int, float] = {}
        self._workers = [
            threading.Thread(target=self._work, name=f"engine-{i}", daemon=True)
            for i in range(engine.streams)
        ]
        for worker in self._workers:
            worker.start()

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait, padding not counted."""
        return self._queue.tokens

    @property
    def queue_age(self) -> float:
        """Seconds that the oldest waiting job has waited."""
        with self._changed:
            oldest = self._queue.oldest()
        return 0.0 if oldest is None else time.monotonic() - oldest.arrived

    @property
    def tokens_per_second(self) -> float:
        """What the engine computes while it is busy, all streams, measured; 0 before that."""
        return self._tokens_per_second

    @property
    def longest_batch(self) -> float:
        """Seconds that the batch longest in the engine has been there; 0 when none is."""
        started = min(list(self._started.values()), default=None)
        return 0.0 if started is None else time.monotonic() - started

    async def compute(self, windows: Sequence[Ids], deadline: float) -> Computed:
        """Vectors of windows, in their order.

        Args:
            windows: model inputs, special tokens included.
            deadline: on ``time.monotonic``'s clock.

        Raises:
            OverloadedError: too much waits already.
            DeadlineError: ``deadline`` passed.
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
            # the loop may have closed while the last batch ran
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, error)

        job = Job(windows, deadline, time.monotonic(), done)
        self._admit(job)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await finished
        except TimeoutError as error:
            raise DeadlineError from error
        finally:
            with self._changed:
                self._queue.drop(job)
            _trace(job, sys.exception())
        vectors = np.stack([v for v in job.vectors if v is not None])
        started = job.first_taken if job.first_taken is not None else job.arrived
        return Computed(vectors, started - job.arrived, time.monotonic() - started)

    def close(self) -> None:
        """Let running batches end, then stop the workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(_JOIN_SECONDS)

    def _admit(self, job: Job) -> None:
        with self._changed:
            waiting = self._queue.tokens
            if waiting and waiting + job.waiting_tokens > self._limit:
                excess = waiting + job.waiting_tokens - self._limit
                rate = self._tokens_per_second
                raise OverloadedError(max(1.0, min(excess, waiting) / rate if rate else 1.0))
            self._queue.add(job)
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not len(self._queue):
                    self._changed.wait()
                if self._closed:
                    return
                now = time.monotonic()
                late = self._queue.expire(now)
                batch = self._queue.take(now)
            for job in late:
                job.done(DeadlineError())
            if batch:
                self._run(batch)

    def _run(self, batch: list[Window]) -> None:
        """Compute a batch; one that raises is halved, so that only what fails alone is failed."""
        padded = batch[0].padded
        input_ids = np.full((len(batch), padded), self._pad, dtype=np.int64)
        mask = np.zeros((len(batch), padded), dtype=np.int64)
        for row, window in enumerate(batch):
            input_ids[row, : window.length] = window.ids
            mask[row, : window.length] = 1
        started = time.monotonic()
        vectors = self._call(input_ids, mask)
        if isinstance(vectors, Exception):
            self._split(batch, vectors)
            return
        seconds = time.monotonic() - started
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()
        if bad:
            self._fail([batch[row] for row in bad], ValueError("the vector is not finite"))
        tokens = sum(window.length for window in batch)
        self._settle(batch, vectors, tokens, seconds)
        self._report(BatchReport(len(batch), tokens, mask.size, seconds))

    def _call(
        self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]
    ) -> NDArray[np.float32] | Exception:
        thread = threading.get_ident()
        self._started[thread] = time.monotonic()
        try:
            vectors = self._engine.run(input_ids, mask)
            if vectors.ndim != 2 or len(vectors) != len(input_ids):
                raise ValueError(f"{len(input_ids)} windows gave shape {vectors.shape}")
        except Exception as error:  # noqa: BLE001 - runtimes share no base class of exceptions
            return error
        finally:
            del self._started[thread]
        return vectors

    def _split(self, batch: list[Window], error: Exception) -> None:
        alive = [window for window in batch if not window.job.dropped]
        if len(batch) == 1:
            self._fail(batch, error)
            return
        half = len(alive) // 2
        for part in (alive[:half], alive[half:]):
            if part:
                self._run(part)

    def _settle(
        self, batch: list[Window], vectors: NDArray[np.float32], tokens: int, seconds: float
    ) -> None:
        ready: list[Job] = []
        with self._changed:
            rate = tokens / max(seconds, 1e-6) * self._engine.streams
            seen = self._tokens_per_second
            self._tokens_per_second = rate if seen == 0 else 0.9 * seen + 0.1 * rate
            for window, vector in zip(batch, vectors, strict=True):
                job = window.job
                job.vectors[window.index] = vector
                job.left -= 1
                if job.left == 0 and not job.dropped:
                    ready.append(job)
        for job in ready:
            job.done(None)

    def _fail(self, windows: list[Window], error: Exception) -> None:
        failure = EngineFailedError(f"{type(error).__name__} in the engine")
        failure.__cause__ = error
        jobs = {window.job for window in windows}
        with self._changed:
            for job in jobs:
                self._queue.drop(job)
        for job in jobs:
            job.done(failure)


def _trace(job: Job, error: BaseException | None) -> None:
    """Spans of a job that is over, however it ended."""
    now = time.monotonic()
    size = {"docsplit.windows": len(job.windows), "docsplit.tokens": sum(map(len, job.windows))}
    taken = job.first_taken
    if taken is None:
        stages.record("queue", job.arrived, now, size, error)
    else:
        stages.record("queue", job.arrived, taken, size)
        stages.record("infer", taken, now, size, error)
