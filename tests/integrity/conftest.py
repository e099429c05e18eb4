"""A store that is made once and copied for each damage."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests import forked
from tests.integrity import stores


@pytest.fixture(scope="session", autouse=True)
def _reader() -> None:
    """Let the reader of damaged files and services share what they are forked from."""
    forked.begin()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    asyncio.run(stores.make(root))
    return root
