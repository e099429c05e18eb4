"""Each kind of work has its own threads, and none waits in asyncio's default executor."""

from __future__ import annotations

import ast
import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import executors
from service.executors import Pool
from tests.conftest import ROOT, until

# calls that run something in asyncio's default executor, the last one only with None
SHARED = ("to_thread", "run_in_threadpool", "run_sync", "run_in_executor")


def shared_uses(code: str) -> Iterator[int]:
    """Lines that run something in asyncio's default executor."""
    # few modules name such a call, and to parse them all takes most of a second
    if not any(name in code for name in SHARED):
        return
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        first = node.args[0] if node.args else None
        if name in SHARED[:-1] or (
            name == "run_in_executor" and isinstance(first, ast.Constant) and first.value is None
        ):
            yield node.lineno


def modules() -> list[Path]:
    return sorted([*(ROOT / "service").rglob("*.py"), *(ROOT / "features").rglob("*.py")])


def test_no_module_runs_anything_in_the_default_executor() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in modules()
        if (lines := list(shared_uses(path.read_text("utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "asyncio.to_thread(f, 1)",
        "to_thread(f)",
        "loop.run_in_executor(None, f)",
        "anyio.to_thread.run_sync(f)",
    ],
)
def test_the_search_finds_such_a_call(code: str) -> None:
    assert list(shared_uses(code)) == [1]
    assert not list(shared_uses("loop.run_in_executor(self._pool, f)"))


def test_every_route_and_dependency_is_a_coroutine() -> None:
    """FastAPI runs all others in forty threads of anyio."""
    from fastapi.dependencies.models import Dependant
    from fastapi.routing import iter_route_contexts

    from service.server.app import _ROUTES

    def calls(dependant: Dependant) -> Iterator[object]:
        yield dependant.call
        for each in dependant.dependencies:
            yield from calls(each)

    routes = [one for one in iter_route_contexts(_ROUTES) if getattr(one, "dependant", None)]
    assert len(routes) > 60
    threaded = {
        call
        for route in routes
        for call in calls(route.dependant)
        if not asyncio.iscoroutinefunction(call)
    }
    assert threaded == set()


async def test_a_cancelled_call_is_stopped_and_counts_until_its_thread_is_free() -> None:
    pool = Pool("test", 1)
    begun, may_end, seen = threading.Event(), threading.Event(), threading.Event()

    def call(stop: threading.Event) -> None:
        begun.set()
        if stop.wait(10):
            seen.set()
        may_end.wait(10)

    task = asyncio.create_task(pool.run_stoppable(call))
    await until(begun.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(seen.is_set)
    assert pool.busy == Pool.busy_threads("test") == 1
    may_end.set()
    await until(lambda: pool.busy == 0)
    assert Pool.busy_threads("test") == 0


class _Load:
    """A large object that a call needs."""


def test_a_call_cancelled_before_its_turn_never_begins_and_releases_memory() -> None:
    pool = Pool("test", 1)
    gate = threading.Event()
    begun: list[object] = []

    async def scenario() -> weakref.ref[_Load]:
        first = asyncio.create_task(pool.run(gate.wait, 10))
        await until(lambda: pool.busy == 1)
        load = _Load()
        kept = weakref.ref(load)
        second = asyncio.create_task(pool.run(begun.append, load))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        del load, second
        # asyncio releases the exception one turn later
        await asyncio.sleep(0.01)
        gc.collect()
        # the pool's thread is still busy
        assert pool.busy == 1
        assert kept() is None
        gate.set()
        await first
        await pool.run(begun.append, "third")
        return kept

    asyncio.run(scenario())
    assert begun == ["third"]


async def test_a_call_runs_in_the_context_of_its_task_and_its_errors_propagate() -> None:
    import structlog

    pool = Pool("test", 1)

    with structlog.contextvars.bound_contextvars(request_id="one"):
        assert (await pool.run(structlog.contextvars.get_contextvars))["request_id"] == "one"
    with pytest.raises(ValueError, match="seven"):
        await pool.run(int, "seven")


async def test_libraries_have_two_counted_threads() -> None:
    gate = threading.Event()

    loop = asyncio.get_running_loop()
    executors.install(loop)
    calls = [loop.run_in_executor(None, gate.wait, 10) for _ in range(5)]
    await until(lambda: Pool.busy_threads("libraries") == 2)
    assert sum(thread.name.startswith("libraries") for thread in threading.enumerate()) == 2
    gate.set()
    await asyncio.gather(*calls)
