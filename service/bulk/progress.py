"""Progress of an indexing run: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from docsplit.corpora.fields import DataError

_LINE_SECONDS = 5.0
# The pace of so many seconds gives the time left: batches take seconds, and skipped documents none.
_PACE_SECONDS = 120.0


class IndexProgress:
    """Shows the documents and tokens that are done, the pace and the time left."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            get_time=clock,
            speed_estimate_period=_PACE_SECONDS,
            disable=not console.is_terminal,
        )
        # documents and tokens of the finished batches, documents and tokens of the present one
        self._done = self._tokens = self._inside = self._computed = 0
        self._ended = threading.Event()
        self._lines = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        self._bar.start()
        if not self._console.is_terminal:
            self._lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._bar.stop()

    def start(self, title: str, total: int | None = None, done: int = 0) -> TaskID:
        """Begin to show a task.

        Args:
            total: number of documents, if it is known.
            done: number of documents that were done before.
        """
        return self._bar.add_task(title, total=total, completed=done, step=False)

    def step(self, title: str) -> None:
        """Begin to show a task without documents, and end the one before it."""
        self.ended()
        for task in self._bar.task_ids:
            self._bar.update(task, total=1, completed=1)
        self._bar.add_task(title, total=None, step=True)

    def update(self, task: TaskID, done: int, tokens: int | None = None) -> None:
        """Show that ``done`` documents with ``tokens`` tokens are done."""
        self._done, self._tokens = done, tokens or 0
        self._show(task, done, tokens)

    def embedding(self, documents: int) -> None:
        """Begin to embed a batch of documents, which are not done before all of them are."""
        self._inside, self._computed = documents, 0

    def computed(self, task: TaskID, tokens: int, left: int) -> None:
        """Show that ``tokens`` more tokens of the batch are computed, and ``left`` wait."""
        self._computed += tokens
        share = self._inside * self._computed / (self._computed + left)
        self._show(task, self._done + share, self._tokens + self._computed)

    def _show(self, task: TaskID, done: float, tokens: int | None) -> None:
        shown = self._bar.tasks[self._bar.task_ids.index(task)]
        title = shown.description
        if tokens is not None:
            pace = tokens / max(shown.elapsed or 0, 1e-9)
            title = f"{title.partition(':')[0]}: {tokens:,} tokens, {pace:,.0f} tokens/s"
        self._bar.update(task, completed=done, description=title)

    def count(self, task: TaskID, documents: Iterable[object]) -> None:
        """Count the documents of a task while it runs; only then the time left is known."""

        def run() -> None:
            try:
                self._bar.update(task, total=sum(1 for _ in documents))
            except DataError:
                # the run itself names the error when it reaches the document
                return

        threading.Thread(target=run, daemon=True).start()

    def ended(self) -> None:
        """Say that the present task has ended, where no bar shows it."""
        if not self._console.is_terminal and self._bar.tasks:
            self._say()

    def line(self) -> str:
        """The present state in words."""
        task = self._bar.tasks[-1]
        if task.fields["step"]:
            return f"{task.description}, {duration(task.elapsed or 0)}"
        of = "" if task.total is None else f" of {task.total:,.0f}"
        left = task.time_remaining
        return f"{task.description}, {int(task.completed):,}{of} documents" + (
            "" if left is None else f", {duration(left)} left"
        )

    def _write(self) -> None:
        while not self._ended.wait(_LINE_SECONDS):
            if self._bar.tasks:
                self._say()

    def _say(self) -> None:
        self._console.print(self.line(), markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """A duration in words, for example ``2 min 5 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
