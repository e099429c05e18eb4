"""How long other processes have shown no sign, by the clock of the process that reads the signs."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from cachetools import LRUCache

# several signs of a process that works, even if its clock is wrong
SILENT_SECONDS = 10.0
# names of which a process remembers the last sign
_KEPT = 4096


class Silence:
    """Signs that a process saw more than once, such as heartbeats.

    A sign has a time of the clock of its replica. If that clock is wrong, the sign of a replica
    that works looks as old as that of one that has ended, but it changes.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # the sign, and when it was first seen
        self._seen: LRUCache[str, tuple[Hashable, float]] = LRUCache(_KEPT)

    def ended(
        self,
        name: str,
        sign: Hashable,
        expires: float,
        seconds: float,
        silent: float = SILENT_SECONDS,
    ) -> bool:
        """Whether a replica that gave a sign seems to have ended.

        Args:
            name: of the sign.
            sign: the newest.
            expires: when the sign counts no longer, in seconds since the epoch.
            seconds: for how long the sign counts.
            silent: seconds for which it must not have changed, even if it seems expired: the clock
                of the other replica, or of this one, may be wrong.
        """
        still = self._still(name, sign)
        # an expired sign counts the time before this process first saw it
        return still >= seconds or (still >= min(seconds, silent) and expires < time.time())

    def _still(self, name: str, sign: Hashable) -> float:
        """For how many seconds a sign has not changed; 0 if this is the first look at it."""
        now = self._clock()
        seen = self._seen.get(name)
        if seen is None or seen[0] != sign:
            self._seen[name] = sign, now
            return 0.0
        return now - seen[1]
