"""Ending a run when the operator wishes."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any


class Interruption:
    """Turns SIGINT and SIGTERM into a wish to stop after the current step."""

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        """Nothing asked for yet."""
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        """Take over the signals, in the main thread; elsewhere there are none to take."""
        if threading.current_thread() is threading.main_thread():
            for number in self._SIGNALS:
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        sys.stderr.write("\nstopping after this step; once more to stop at once\n")
