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
    said = "papers: 20,000 tokens, 2,000 tokens/s, 100 of 1,000 documents, 1 min 30 s left"
    assert progress.line() == said


def test_a_line_tells_of_a_batch_that_is_not_done_yet() -> None:
    clock = Clock()
    progress = IndexProgress(Console(file=io.StringIO()), clock)
    task = progress.start("papers", 20)
    for base in (0, 10):
        progress.embedding(10)
        for second in range(1, 11):
            clock.now = base + second
            progress.computed(task, 1000, 10_000 - 1000 * second)
            done, pace = base + second, f"{1000 * (base + second):,} tokens, 1,000 tokens/s"
            assert progress.line().startswith(f"papers: {pace}, {done} of 20 documents")
        progress.update(task, base + 10, 1000 * (base + 10))
        assert progress.line().startswith(f"papers: {pace}, {done} of 20 documents")
        assert base or progress.line().endswith(", 10 s left")


def test_a_broken_source_leaves_the_number_unknown() -> None:
    progress = IndexProgress(Console(file=io.StringIO()))
    task = progress.start("papers")
    progress.update(task, 3)
    assert progress.line() == "papers, 3 documents"


def test_durations_are_words() -> None:
    assert (duration(59.6), duration(12), duration(125)) == ("1 min 0 s", "12 s", "2 min 5 s")
