"""Benchmarks of requests measure what they say."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.comparison import commits
from benchmarks.reliability.overload import _goodput
from benchmarks.rig.client import Answer
from tests.conftest import ROOT, Server


class StopError(Exception):
    """Ends the benchmark before it measures."""


def test_both_commits_are_started_in_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[Path, dict[str, Any]] = {}

    @contextmanager
    def serving(log: Path, *, tree: Path, **ways: Any) -> Iterator[Server]:
        started[tree] = ways
        if len(started) == 2:
            raise StopError
        yield Server("http://127.0.0.1:9", None, log)  # type: ignore[arg-type]

    monkeypatch.setattr(commits, "serving", serving)
    monkeypatch.setattr(commits, "fill", lambda *_: None)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    monkeypatch.setattr(sys, "argv", ["commits", "HEAD"])
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StopError):
        commits.main()
    # other tests of the same process rely on it
    assert signal.getsignal(signal.SIGTERM) == before
    # ``serving`` starts only a service of this checkout by a fork, unless it is to be fresh
    assert started[ROOT] == {"fresh": True}
    assert started.keys() > {ROOT}


def test_the_rate_of_failed_requests_is_zero() -> None:
    assert _goodput([Answer(0, 503, 0.0, 1.0)]) == 0
    assert _goodput([Answer(0, 503, 0.0, 9.0), Answer(1, 200, 1.0, 1.0)]) == 0.5
