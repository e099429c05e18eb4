"""`kill -9` of a running service during writes; `benchmarks.reliability.kills` does more."""

from __future__ import annotations

from pathlib import Path

from benchmarks.reliability import kills


def test_kills_and_torn_manifests_lose_no_acknowledged_write(tmp_path: Path) -> None:
    found = kills.run(tmp_path, kills=2, writes=20)
    assert found.writes >= 20
    assert found.torn >= 1
    assert found.lost == []


def test_the_check_sees_a_lost_write(tmp_path: Path) -> None:
    """A control: an acknowledged write is torn."""
    assert kills.run(tmp_path, kills=1, writes=5, careless=True).lost != []
