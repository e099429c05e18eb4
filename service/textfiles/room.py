"""Bounds the texts and vectors of all jobs on the storage of the indexes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from service.embedding.batching.threshold import overflow
from service.errors import OverloadedError

if TYPE_CHECKING:
    from service.jobs.table import Job

# jobs that wait, run or keep vectors, and files that arrive
MOST_JOBS = 512
_RETRY_SECONDS = 60.0


class Room:
    """The jobs and the bytes of all clients; see ``threshold`` for a client's part.

    Args:
        capacity: bytes of the texts and vectors of all jobs.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._jobs: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        # files that arrive here, which no table has yet
        self._arriving: Counter[str] = Counter()
        self._arriving_bytes: Counter[str] = Counter()

    def know(self, jobs: Iterable[Job]) -> None:
        """Read what the jobs of all replicas hold now."""
        now = time.time()
        held = [job for job in jobs if job.kind == "embed" and job.holds(now)]
        self._jobs = Counter(job.owner for job in held)
        self._bytes = Counter()
        for job in held:
            self._bytes[job.owner] += job.progress["bytes"]

    def enter(self, owner: str) -> None:
        """Take the place of a job for a file that arrives, until ``leave``.

        Raises:
            OverloadedError: this client, or all clients, have too many jobs.
        """
        total = self._jobs.total() + self._arriving.total()
        if overflow(MOST_JOBS, total, self._jobs[owner] + self._arriving[owner], 1) > 0:
            raise OverloadedError(
                _RETRY_SECONDS,
                "overloaded: too many jobs of this client, or of all clients, embed files or keep "
                "vectors; remove one with DELETE /jobs/{job_id}, or try again",
            )
        self._arriving[owner] += 1

    def take(self, owner: str, amount: int) -> None:
        """Reserve bytes for a file that arrives, until ``leave``.

        Raises:
            OverloadedError: there is no room for them.
        """
        total = self._bytes.total() + self._arriving_bytes.total()
        mine = self._bytes[owner] + self._arriving_bytes[owner]
        if overflow(self._capacity, total, mine, amount) > 0:
            raise OverloadedError(
                _RETRY_SECONDS,
                "overloaded: the texts and vectors of jobs of this client, or of all, leave "
                "no space for this file (max_job_bytes); remove a job with DELETE /jobs/{job_id}, "
                "send a smaller file, or try again",
            )
        self._arriving_bytes[owner] += amount

    def leave(self, owner: str, amount: int, *, begun: bool) -> None:
        """Give back the place and the bytes of a file that arrived.

        Args:
            begun: whether its job has them now.
        """
        self._arriving[owner] -= 1
        self._arriving_bytes[owner] -= amount
        if begun:
            self._jobs[owner] += 1
            self._bytes[owner] += amount
        self._arriving, self._arriving_bytes = +self._arriving, +self._arriving_bytes
