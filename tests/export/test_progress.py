"""The progress of an export, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from export.progress import Progress, describe


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("share", "seconds", "said"),
    [
        (0.0, 1, "reading"),
        (0.0, 75, "reading, 1 min 15 s so far"),
        # too early for an estimate
        (0.5, 1, "reading"),
        (0.01, 20, "reading, 20 s so far"),
        (0.25, 20, "reading, 25 %, 1 min 0 s left"),
        (1.0, 20, "reading, 100 %, 0 s left"),
    ],
)
def test_the_time_left_follows_the_pace(share: float, seconds: float, said: str) -> None:
    assert describe("reading", share, seconds) == said


def test_without_a_terminal_a_line_appears_every_few_seconds() -> None:
    output, clock = io.StringIO(), Clock()
    progress = Progress(Console(file=output), clock)
    for now, step, share in (
        (0, "reading", 0.0),
        (4, "reading", 0.1),
        (6, "reading", 0.1),
        (9, "reading", 0.2),
        (12, "reading", 0.5),
        (13, "writing", 0.5),
    ):
        clock.now = now
        progress.report(step, share)
        progress.show()
    assert output.getvalue().splitlines() == [
        "reading",
        "reading, 10 %, 54 s left",
        "reading, 50 %, 12 s left",
        "writing",
    ]


def test_a_terminal_shows_one_line() -> None:
    output = io.StringIO()
    with Progress(Console(file=output, force_terminal=True, width=60)) as progress:
        progress.report("reading")
        progress.show()
    assert "reading" in output.getvalue()
    # the spinner erases its line
    assert output.getvalue().endswith("\x1b[2K")
