"""A circuit breaker (Nygard, Release It!, 2007)."""

import time
from collections.abc import Callable


class Breaker:
    """Keeps callers away from a server that fails.

    It is closed until ``failures`` calls in a row fail. Then it opens for ``rest`` seconds. After
    that, one caller may try. Every failed trial doubles the rest, up to ``longest``.

    Args:
        failures: failed calls in a row that open it.
        rest: seconds of the first rest.
        longest: seconds of the longest rest.
        clock: seconds.
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
