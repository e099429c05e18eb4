"""Waiting windows, grouped by length, handed out in batches that waste little padding.

Order: the job that has been served least goes first, so that a short request never waits behind
a long document (least attained service; Kleinrock, Queueing Systems II, 1976), except that a job
older than ``age_limit`` goes before all others, so that long documents are not starved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

# Batches mix lengths down to this share of the longest; shorter windows make their own batch.
MIX = 0.75
# Lengths are rounded up to a multiple, so that runtimes meet few shapes.
ROUND = 8


@dataclass(eq=False, slots=True)
class Job:
    """The windows of one request.

    Attributes:
        windows: token ids of each window.
        deadline: on the queue's clock; the job is dropped when it has passed.
        done: called with the error, or with None when the last vector has arrived.
        vectors: results by window.
        left: windows without a result.
        waiting: windows in no batch yet, the longest first.
    """

    windows: Sequence[Ids]
    deadline: float
    arrived: float
    done: Callable[[BaseException | None], None]
    vectors: list[NDArray[np.float32] | None] = field(init=False)
    left: int = field(init=False)
    waiting: dict[Window, None] = field(init=False)
    waiting_tokens: int = field(init=False)
    served_tokens: int = 0
    first_taken: float | None = None
    dropped: bool = False

    def __post_init__(self) -> None:
        self.vectors = [None] * len(self.windows)
        self.left = len(self.windows)
        self.waiting_tokens = sum(len(w) for w in self.windows)
        windows = (Window(self, i, len(w)) for i, w in enumerate(self.windows))
        self.waiting = dict.fromkeys(sorted(windows, key=lambda w: -w.length))


@dataclass(eq=False, slots=True)
class Window:
    """One window of a job."""

    job: Job
    index: int
    length: int

    @property
    def ids(self) -> Ids:
        """Token ids, special tokens included."""
        return self.job.windows[self.index]

    @property
    def padded(self) -> int:
        """The length rounded up."""
        return -(-self.length // ROUND) * ROUND


class WindowQueue:
    """The waiting windows. Not thread-safe: the batcher holds a lock around every call.

    Args:
        batch_tokens: padded tokens of a batch at most (a single longer window still goes).
        age_limit: seconds after which a job goes first.
    """

    def __init__(self, batch_tokens: int, age_limit: float) -> None:
        self.batch_tokens = batch_tokens
        self.age_limit = age_limit
        self.tokens = 0
        self._jobs: dict[Job, None] = {}
        self._by_length: dict[int, dict[Window, None]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        """Let the job's windows wait."""
        self._jobs[job] = None
        self.tokens += job.waiting_tokens
        for window in job.waiting:
            self._by_length.setdefault(window.padded, {})[window] = None

    def drop(self, job: Job) -> None:
        """Forget what of the job still waits; what is being computed is thrown away later."""
        job.dropped = True
        for window in list(job.waiting):
            self._remove(window)

    def oldest(self) -> Job | None:
        """The waiting job that arrived first."""
        return min(self._jobs, key=lambda job: job.arrived, default=None)

    def expire(self, now: float) -> list[Job]:
        """Drop and return the jobs whose deadline has passed."""
        late = [job for job in self._jobs if job.deadline <= now]
        for job in late:
            self.drop(job)
        return late

    def take(self, now: float) -> list[Window]:
        """The next batch, the longest window first; empty when nothing waits."""
        oldest = self.oldest()
        if oldest is None:
            return []
        job = oldest
        if now - oldest.arrived <= self.age_limit:
            job = min(self._jobs, key=lambda job: (job.served_tokens, job.arrived))
        first = next(iter(job.waiting))
        room = max(1, self.batch_tokens // first.padded)
        batch = [first]
        self._hand_out(first, now)
        for length in range(first.padded, max(ROUND, int(first.padded * MIX)) - 1, -ROUND):
            fitting = list(islice(self._by_length.get(length, ()), room - len(batch)))
            for window in fitting:
                self._hand_out(window, now)
            batch += fitting
        return batch

    def _hand_out(self, window: Window, now: float) -> None:
        job = window.job
        if job.first_taken is None:
            job.first_taken = now
        job.served_tokens += window.length
        self._remove(window)

    def _remove(self, window: Window) -> None:
        job = window.job
        del job.waiting[window]
        job.waiting_tokens -= window.length
        self.tokens -= window.length
        bucket = self._by_length[window.padded]
        del bucket[window]
        if not bucket:
            del self._by_length[window.padded]
        if not job.waiting:
            del self._jobs[job]
