"""Progress of embedding: a bar on a terminal, occasional lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

_LINE_SECONDS = 30.0

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
            if not self._console.is_terminal and self._clock() - said >= _LINE_SECONDS:
                said = self._clock()
                self._console.print(f"{title}, {100 * done / total:.0f} %", markup=False)

        with bar:
            yield advance
