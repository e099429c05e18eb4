"""Progress of docsplit-index where the output is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from service.bulk.progress import IndexProgress, duration
from tests.conftest import wait_until


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_names_documents_pace_and_time_left() -> None:
    clock = Clock()
    progress = IndexProgress(Console(file=io.StringIO()), clock)
    task = progress.start("papers")
    assert progress.line() == "papers, 0 documents"
    progress.count(task, range(1000))
    wait_until(lambda: " of 1,000 " in progress.line(), 5)
    for second in range(1, 11):
        clock.now = second
        progress.update(task, 10 * second, 2000 * second)
    # 10 documents a second, 900 left
    assert progress.line() == "papers: 2,000 tokens/s, 100 of 1,000 documents, 1 min 30 s left"


def test_a_broken_source_leaves_the_number_unknown() -> None:
    progress = IndexProgress(Console(file=io.StringIO()))
    task = progress.start("papers")
    progress.update(task, 3)
    assert progress.line() == "papers, 3 documents"


def test_durations_are_words() -> None:
    assert (duration(59.6), duration(12), duration(125)) == ("1 min 0 s", "12 s", "2 min 5 s")
