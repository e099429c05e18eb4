"""Show the step of an export, its share and the time left."""

import threading
import time
from collections.abc import Callable
from typing import Protocol, Self

from rich.console import Console

# Seconds between two lines where the output is no terminal.
_LINE_SECONDS = 5.0
_TICK_SECONDS = 0.5
# An estimate from less than this share or time is a guess.
_LEAST_SHARE, _LEAST_SECONDS = 0.02, 3.0


class Report(Protocol):
    """Called with each step and the share of it that is done."""

    def __call__(self, step: str, share: float = 0.0, /) -> None: ...


def unreported(step: str, share: float = 0.0, /) -> None:
    """A ``Report`` that shows nothing."""


class Progress:
    """A spinner with the present step on a terminal; elsewhere a line every few seconds.

    The time left is that of the present step, from the pace of what is done of it. A step that does
    not count what is done shows the time it has taken.

    Args:
        console: the output.
        clock: the time in seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._status = console.status("starting") if console.is_terminal else None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._step, self._share, self._began, self._said = "", 0.0, clock(), clock()

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._status is not None:
            self._status.stop()

    def report(self, step: str, share: float = 0.0, /) -> None:
        """Show a step and the share of it that is done."""
        with self._lock:
            new = step != self._step
            if new:
                self._step, self._began = step, self._clock()
            self._share = share
            if new:
                self._say()

    def show(self) -> None:
        """Write the present state, if it is time for a line."""
        with self._lock:
            if self._step and (self._status or self._clock() - self._said >= _LINE_SECONDS):
                self._say()

    def _say(self) -> None:
        self._said = self._clock()
        text = describe(self._step, self._share, self._clock() - self._began)
        if self._status is not None:
            self._status.update(text)
        else:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_SECONDS):
            self.show()


def describe(step: str, share: float, seconds: float) -> str:
    """A step in words, for example ``measuring the int8 graph, 40 %, 12 s left``.

    Args:
        step: what is being done.
        share: the share that is done, from 0 to 1; 0 if the step does not count.
        seconds: the time since the step began.
    """
    if seconds < _LEAST_SECONDS:
        return step
    if share < _LEAST_SHARE:
        return f"{step}, {duration(seconds)} so far"
    left = duration(seconds * (1 - share) / share)
    return f"{step}, {100 * share:.0f} %, {left} left"


def duration(seconds: float) -> str:
    """A duration in words, for example ``2 min 5 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
