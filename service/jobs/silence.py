"""Which heartbeats stand still, by the clock of the process that reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

# several heartbeats, of jobs that run and of trainings
SILENT_SECONDS = 10.0


class Silence:
    """Heartbeats that a process saw more than once.

    A heartbeat is a time of the clock of its replica. If that clock is behind, the heartbeat of a
    job that runs looks as old as that of a job whose replica has ended, but it changes.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # the heartbeat, and when it was first seen
        self._seen: dict[str, tuple[float, float]] = {}

    def beating(self, heartbeats: Mapping[str, float], seconds: float) -> set[str]:
        """The names whose heartbeats have changed, or were first seen, within so many seconds.

        Args:
            heartbeats: by name; other names are forgotten.
            seconds: 0 for none of the names.
        """
        now = self._clock()
        former = self._seen
        self._seen = {
            name: former[name] if name in former and former[name][0] == beat else (beat, now)
            for name, beat in heartbeats.items()
        }
        return {name for name, (_, since) in self._seen.items() if now - since < seconds}
