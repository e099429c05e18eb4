"""Which process of pytest-xdist runs which tests."""

from __future__ import annotations

from typing import Any

import pytest

# each of these folders keeps a service, and the first one a browser, for all its files
TOGETHER = ("tests/page/", "tests/mcp/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests of a file, and those of such a folder, to one process."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            shared = [folder for folder in TOGETHER if nodeid.startswith(folder)]
            return shared[0] if shared else str(super()._split_scope(nodeid))

    return Scheduling(config, log)
