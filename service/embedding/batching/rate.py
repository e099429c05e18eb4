"""How fast the engine is, from what it did of late."""

from __future__ import annotations

import math

# Engine seconds after which a batch counts 1/e. A batch weighs by the time that it took, so that
# many requests of few tokens, whose cost is not their tokens, do not hide the rate of long ones.
HORIZON = 2.0


class Rate:
    """Tokens a second of engine time; 0 before the first batch."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Count a batch."""
        seconds = max(seconds, 1e-6)
        kept = math.exp(-seconds / HORIZON)
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + seconds

    @property
    def value(self) -> float:
        """The present estimate."""
        return self._tokens / self._seconds if self._seconds else 0.0
