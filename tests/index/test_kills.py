"""`kill -9` of a running service while it is written to; `benchmarks.kills` does more of it."""

from __future__ import annotations

from pathlib import Path

from benchmarks import kills


def test_kills_and_torn_manifests_lose_no_acknowledged_write(tmp_path: Path) -> None:
    found = kills.run(tmp_path, kills=2, writes=20)
    assert found.writes >= 20
    assert found.torn >= 1
    assert found.lost == []


def test_a_lost_write_would_be_seen(tmp_path: Path) -> None:
    """A control: an acknowledged write is torn."""
    assert kills.run(tmp_path, kills=1, writes=5, careless=True).lost != []
