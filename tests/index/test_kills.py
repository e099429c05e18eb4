"""`kill -9` of a running service during writes; `benchmarks.reliability.kills` does more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.reliability import kills
from benchmarks.rig.server import Service
from tests.conftest import serving


@contextmanager
def started(*flags: str) -> Iterator[Service]:
    """A service that starts fast."""
    with TemporaryDirectory() as folder, serving(Path(folder, "log"), *flags) as running:
        yield Service(running.url, running.process.pid, 0)


def test_kills_and_torn_manifests_lose_no_acknowledged_write(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    found = kills.run(tmp_path, kills=2, writes=20, start=partial(started, *light))
    assert found.writes >= 20
    assert found.torn >= 1
    assert found.lost == []


def test_the_check_sees_a_lost_write(tmp_path: Path, light: tuple[str, ...]) -> None:
    """A control: an acknowledged write is torn."""
    start = partial(started, *light)
    assert kills.run(tmp_path, kills=1, writes=5, careless=True, start=start).lost != []
