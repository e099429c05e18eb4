"""Settings of the interpreter while it serves."""

from __future__ import annotations

import asyncio
import gc
import sys
import types
from collections.abc import Iterator

import pytest

from service import executors
from tests.conftest import until


@pytest.fixture
def restored() -> Iterator[None]:
    seconds = sys.getswitchinterval()
    yield
    sys.setswitchinterval(seconds)
    gc.unfreeze()


@pytest.mark.usefixtures("restored")
async def test_objects_of_late_imports_are_excluded_from_collections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executors, "_PAUSE_SECONDS", 0.001)
    gc.unfreeze()

    def frozen(module: types.ModuleType) -> bool:
        return not any(one is module for one in gc.get_objects())

    tending = asyncio.create_task(executors.tend())
    await until(lambda: frozen(executors))
    late = types.ModuleType("late")
    # the control: without an import nothing is frozen
    await asyncio.sleep(0.02)
    assert not frozen(late)
    monkeypatch.setitem(sys.modules, "late", late)
    await until(lambda: frozen(late))
    tending.cancel()
    assert sys.getswitchinterval() == pytest.approx(executors.SWITCH_SECONDS)
