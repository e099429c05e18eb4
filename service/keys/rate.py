"""How fast a key may ask."""

from __future__ import annotations

import time
from collections.abc import Callable

# what may be asked at once after a rest, in seconds of the rate
BURST_SECONDS = 10.0
# a rate that nothing reaches: a key without a limit costs the same steps as one with
UNLIMITED = 1e18


class Bucket:
    """A token bucket that may go into debt, for costs that are known afterwards.

    Args:
        rate: units a second.
        clock: seconds that never go back.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._most = max(1.0, BURST_SECONDS * rate)
        self._level = self._most
        self._filled_at = clock()

    def wait(self, least: float) -> float:
        """Seconds until it holds ``least`` units; 0 where it does."""
        now = self._clock()
        self._level = min(self._most, self._level + (now - self._filled_at) * self.rate)
        self._filled_at = now
        return max(0.0, (least - self._level) / self.rate)

    def take(self, units: float) -> None:
        """Take units out, whether they are there or not."""
        self._level -= units
