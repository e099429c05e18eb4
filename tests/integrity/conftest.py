"""A store that is made once and copied for each damage."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from service.integrity import check
from tests import forked
from tests.integrity import stores


@pytest.fixture(scope="session", autouse=True)
def _reader() -> None:
    """Let the reader of damaged files and services share what they are forked from."""
    forked.begin()


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a check look a second time at once: no service writes to the store meanwhile."""
    monkeypatch.setattr(check, "_PAUSE", 0)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    asyncio.run(stores.make(root))
    return root
