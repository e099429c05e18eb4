"""The recent speed of the engine."""

import math

# Engine seconds after which a batch's weight falls to 1/e. A batch weighs by its time. Otherwise
# many short requests, whose cost is not their tokens, would hide the rate of long ones.
HORIZON = 2.0


class Rate:
    """Tokens per second of engine time; 0 before the first batch."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Count one batch."""
        seconds = max(seconds, 1e-6)
        kept = math.exp(-seconds / HORIZON)
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + seconds

    @property
    def value(self) -> float:
        """The current estimate."""
        return self._tokens / self._seconds if self._seconds else 0.0
