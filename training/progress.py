"""Progress on the terminal."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

# Progress on the terminal.

_RECENT = 50
_LINE_SECONDS = 15.0


class RunProgress:
    """A bar on a terminal and occasional lines elsewhere. Only the main process shows progress.

    The time left is the number of steps left at the pace of the last steps, plus the validations
    left at the pace of those so far. It appears from the third step on.
    """

    def __init__(
        self,
        total: int,
        done: int,
        evaluate_every: int,
        *,
        enabled: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show progress from step ``done`` to ``total``."""
        self._console = Console(quiet=not enabled, highlight=False)
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            console=self._console,
            disable=not enabled or not self._console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task("", total=total, completed=done, text="")
        self._total, self._done, self._every = total, done, evaluate_every
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=_RECENT)
        self._validations: list[float] = []
        self._clock = clock
        self._last_line = clock()

    def __enter__(self) -> "RunProgress":
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        self._bar.stop()

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

    def validated(self, seconds: float) -> None:
        """Use the duration of a validation for the time left."""
        self._validations.append(seconds)

    def step(self, record: Mapping[str, float]) -> None:
        """Show a step."""
        self._done = int(record["step"])
        self._recent.append((record["seconds"], record["documents"], record["tokens"]))
        text = self.describe(record)
        self._bar.update(self._task, completed=self._done, text=text)
        now = self._clock()
        late = now - self._last_line >= _LINE_SECONDS
        if not self._console.is_terminal and (late or self._done == self._total):
            self._last_line = now
            self.note(f"step {self._done}/{self._total} {text}")

    def describe(self, record: Mapping[str, float]) -> str:
        """Loss, rates and time left in words."""
        seconds = max(sum(s for s, _, _ in self._recent), 1e-9)
        documents = sum(d for _, d, _ in self._recent) / seconds
        tokens = sum(t for _, _, t in self._recent) / seconds
        text = f"loss {record['loss']:.4f} · {documents:.1f} documents/s · {tokens:,.0f} tokens/s"
        left = self.seconds_left()
        return text if left is None else f"{text} · {_clock_time(left)} left"

    def seconds_left(self) -> float | None:
        """Expected seconds to the end; None while there are too few steps to estimate it."""
        if len(self._recent) < 3:
            return None
        pace = sum(s for s, _, _ in self._recent) / len(self._recent)
        validations = self._total // self._every - self._done // self._every
        each = sum(self._validations) / len(self._validations) if self._validations else 0.0
        return (self._total - self._done) * pace + validations * each


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


_EMBEDDING_LINE_SECONDS = 30.0

Advance = Callable[[int], None]


class EmbeddingProgress:
    """Shows how many texts are embedded.

    Args:
        console: the output; None shows nothing.
        clock: the time in seconds.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(quiet=True)
        self._clock = clock

    @contextmanager
    def embedding(self, name: str, texts: int, total: int) -> Iterator[Advance]:
        """Yield a function that takes the amount done of ``total``."""
        title = f"{name}: embedding {texts} texts"
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        task = bar.add_task(title, total=total)
        done, said = 0, self._clock()

        def advance(amount: int) -> None:
            nonlocal done, said
            done += amount
            bar.advance(task, amount)
            if not self._console.is_terminal and self._clock() - said >= _EMBEDDING_LINE_SECONDS:
                said = self._clock()
                self._console.print(f"{title}, {100 * done / total:.0f} %", markup=False)

        with bar:
            yield advance
