"""The progress of every command that trains, measures or exports."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, Self

from rich.console import Console

# Seconds between two lines where the output is no terminal.
_LINE_SECONDS = 5.0
_TICK_SECONDS = 0.5
# An estimate from less than this share or time is a guess.
_LEAST_SHARE, _LEAST_SECONDS = 0.02, 3.0
# optimiser steps whose pace counts
_RECENT = 50

Advance = Callable[[int], None]


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
        console: the output; None shows nothing.
        clock: the time in seconds.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = Console(quiet=True) if console is None else console
        self._clock = clock
        terminal = self._console.is_terminal and not self._console.quiet
        self._status = self._console.status("starting") if terminal else None
        self._lock = threading.Lock()
        self._step, self._share, self._words = "", 0.0, ""
        self._began = self._said = clock()

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        if self._status is not None:
            self._status.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._status is not None:
            self._status.stop()
        self._step = ""

    def report(self, step: str, share: float = 0.0, /, words: str = "") -> None:
        """Show a step, and the share of it that is done or ``words`` in its place."""
        with self._lock:
            new = step != self._step
            if new:
                self._step, self._began = step, self._clock()
            self._share, self._words = share, words
            if new:
                self._say()

    @contextmanager
    def counted(self, step: str, total: int) -> Iterator[Advance]:
        """Show a step of ``total``; gives a function that takes what is done. A short one shows no
        line where the output is no terminal."""
        done = 0

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            self.report(step, done / total)

        with self:
            self._step = step
            self._began = self._said = self._clock()
            yield advance

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self) -> None:
        """Write the present state, if it is time for a line."""
        with self._lock:
            if self._step and (self._status or self._clock() - self._said >= _LINE_SECONDS):
                self._say()

    def _say(self) -> None:
        self._said = self._clock()
        text = self._words or describe(self._step, self._share, self._clock() - self._began)
        if self._status is not None:
            self._status.update(text)
        else:
            self.note(text)

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_SECONDS):
            self.show()


class RunProgress(Progress):
    """The progress of a training run.

    The time left is the number of steps left at the pace of the last steps, plus the validations
    left at the pace of those so far. It appears from the third step on.

    Args:
        total: steps of the run.
        done: steps done so far.
        evaluate_every: steps between validations.
        enabled: whether this process shows progress.
    """

    def __init__(self, total: int, done: int, evaluate_every: int, *, enabled: bool) -> None:
        super().__init__(Console(quiet=not enabled, highlight=False))
        self._total, self._done, self._every = total, done, evaluate_every
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=_RECENT)
        self._validations: list[float] = []

    def validated(self, seconds: float) -> None:
        """Use the duration of a validation for the time left."""
        self._validations.append(seconds)

    def step(self, record: Mapping[str, float]) -> None:
        """Show a step."""
        self._done = int(record["step"])
        self._recent.append((record["seconds"], record["documents"], record["tokens"]))
        self.report("training", words=f"step {self._done}/{self._total} {self.described(record)}")
        if self._done == self._total:
            self._say()

    def described(self, record: Mapping[str, float]) -> str:
        """Loss, rates and time left in words."""
        seconds = max(sum(s for s, _, _ in self._recent), 1e-9)
        documents = sum(d for _, d, _ in self._recent) / seconds
        tokens = sum(t for _, _, t in self._recent) / seconds
        text = f"loss {record['loss']:.4f} · {documents:.1f} documents/s · {tokens:,.0f} tokens/s"
        left = self.seconds_left()
        return text if left is None else f"{text} · {duration(left)} left"

    def seconds_left(self) -> float | None:
        """Expected seconds to the end; None while there are too few steps to estimate it."""
        if len(self._recent) < 3:
            return None
        pace = sum(s for s, _, _ in self._recent) / len(self._recent)
        validations = self._total // self._every - self._done // self._every
        each = sum(self._validations) / len(self._validations) if self._validations else 0.0
        return (self._total - self._done) * pace + validations * each


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
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
