"""Limits the rate of a key."""

import time
from collections.abc import Callable

# the allowance of a key after a rest, in seconds of its rate
BURST_SECONDS = 10.0
# a rate that is never reached: keys with and without a limit take the same steps
UNLIMITED = 1e18


class Bucket:
    """A token bucket with possible debt, for costs that are known only afterwards.

    Args:
        rate: units a second.
        clock: monotonic time in seconds.
        taken: units that were taken before.

    Attributes:
        taken: units that were taken, without those that came back.
    """

    def __init__(
        self, rate: float, clock: Callable[[], float] = time.monotonic, taken: float = 0.0
    ) -> None:
        self.rate = rate
        self.taken = taken
        self._clock = clock
        self._most = max(1.0, BURST_SECONDS * rate)
        self._level = self._most
        self._filled_at = clock()

    def wait(self, least: float) -> float:
        """Seconds until the bucket holds ``least`` units; 0 if it does now."""
        now = self._clock()
        self._level = min(self._most, self._level + (now - self._filled_at) * self.rate)
        self._filled_at = now
        return max(0.0, (least - self._level) / self.rate)

    def take(self, units: float) -> None:
        """Take units out, even more than the bucket holds."""
        self._level -= units
        self.taken += units
