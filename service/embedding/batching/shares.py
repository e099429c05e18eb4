"""Divide the cores between bundles, each with its own queue and engine.

A bundle begins its next batch by start-time fair queueing (Goyal, Vin & Cheng, SIGCOMM 1996): the
bundles that have waiting work have virtual times, which grow by the processor time of their batches
divided by their weights, and the smallest goes first. A bundle without waiting work gathers no
credit, and hinders no other. Running batches are never stopped: the operating system divides the
cores between them.

The processor time of a batch is estimated: ``n`` computing threads get each a core, or
``cores / n`` of one if there are more threads than cores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A bundle that waits for its turn looks again after this time: others may have dropped their work.
_LOOK_SECONDS = 0.02
# weight of the latest batch in the expected cost of the next
_NEWEST = 0.3


class Shares:
    """The shares of all bundles of a process; thread-safe.

    Args:
        cores: threads that compute at full speed at the same time.
    """

    def __init__(self, cores: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.cores = cores
        self._clock = clock
        self._changed = threading.Condition()
        self._members: list[Share] = []
        self._virtual_time = 0.0
        # processor seconds that each computing thread has got so far
        self._progress = 0.0
        self._seen = clock()
        self._threads = 0.0

    def join(self, weight: float, waiting: Callable[[], bool]) -> Share:
        """Add a bundle.

        Args:
            weight: its part of the cores, relative to the others'.
        """
        share = Share(self, weight, waiting)
        with self._changed:
            self._members.append(share)
        return share

    def leave(self, share: Share) -> None:
        """Remove a bundle."""
        with self._changed:
            self._members.remove(share)
            self._changed.notify_all()

    def take_turn(self, share: Share, stopped: Callable[[], bool]) -> float:
        """Wait for a turn; return the cost that it is expected to have."""
        with self._changed:
            while True:
                share.time = max(share.time, self._virtual_time)
                others = [one for one in self._members if one is not share and one.waiting()]
                ahead = min(
                    (max(one.time, self._virtual_time) for one in others), default=share.time
                )
                if share.time <= ahead or stopped():
                    break
                self._changed.wait(_LOOK_SECONDS)
            self._virtual_time = share.time
            share.time += share.expected / share.weight
            self._changed.notify_all()
            return share.expected

    def begin(self, threads: float) -> float:
        """Count threads that begin to compute; return the progress of each thread so far."""
        with self._changed:
            self._advance()
            self._threads += threads
            return self._progress

    def end(self, share: Share, threads: float, begun: float, expected: float) -> None:
        """Count a batch; ``begun`` and ``expected`` are from ``begin`` and ``take_turn``."""
        with self._changed:
            self._advance()
            self._threads -= threads
            cost = threads * (self._progress - begun)
            share.time += (cost - expected) / share.weight
            share.expected += _NEWEST * (cost - share.expected)
            share.spent += cost
            self._changed.notify_all()

    def _advance(self) -> None:
        now = self._clock()
        self._progress += (now - self._seen) * min(1.0, self.cores / max(self._threads, 1.0))
        self._seen = now


class Share:
    """A bundle's share, see ``Shares.join``.

    Attributes:
        expected: processor seconds of its next batch.
        spent: processor seconds of all its batches.
    """

    def __init__(self, shares: Shares, weight: float, waiting: Callable[[], bool]) -> None:
        self.shares = shares
        self.weight = weight
        self.waiting = waiting
        self.time = 0.0
        self.expected = 0.0
        self.spent = 0.0

    @contextmanager
    def turn(self, stopped: Callable[[], bool]) -> Iterator[Turn]:
        """Wait for a turn, and count the batch that runs in it.

        Args:
            stopped: whether to return at once.
        """
        turn = Turn(self, self.shares.take_turn(self, stopped))
        try:
            yield turn
        finally:
            turn.end()


class Turn:
    """The turn of one batch."""

    def __init__(self, share: Share, expected: float) -> None:
        self._share = share
        self._expected = expected
        self._threads = 0.0
        self._begun = 0.0

    def compute(self, streams: int) -> None:
        """Begin to compute on one of an engine's streams."""
        shares = self._share.shares
        self._threads = shares.cores / streams
        self._begun = shares.begin(self._threads)

    def end(self) -> None:
        """Count what was computed, if anything."""
        self._share.shares.end(self._share, self._threads, self._begun, self._expected)
