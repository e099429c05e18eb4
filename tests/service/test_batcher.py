"""The batcher under faults; the engine is a fake, for timing and failures only."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from service.batching.batcher import (
    Batcher,
    BatchReport,
    DeadlineError,
    EngineFailedError,
    OverloadedError,
)
from service.engines.interface import Arithmetic, EngineName

POISON = 13
NAN = 14


class FakeEngine:
    """Answers with the first token of each row; waits at a gate; fails on POISON."""

    name: ClassVar[EngineName] = "onnx-cpu"
    arithmetic: ClassVar[Arithmetic] = "f32"
    device = "CPU"
    streams = 1
    batch_tokens = 64

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = 0
        self.batches: list[NDArray[np.int64]] = []

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        self.entered += 1
        self.gate.wait(10)
        self.batches.append(input_ids)
        if (input_ids == POISON).any():
            raise RuntimeError("poisoned")
        rows = input_ids[:, :1].astype(np.float32)
        return np.where(rows == NAN, np.nan, rows)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def reports() -> list[BatchReport]:
    return []


@pytest.fixture
def batcher(engine: FakeEngine, reports: list[BatchReport]) -> Iterator[Batcher]:
    made = Batcher(
        engine,
        batch_tokens=64,
        queue_tokens=200,
        age_limit=5,
        pad_token_id=0,
        report=reports.append,
    )
    yield made
    engine.gate.set()
    made.close()


def window(first: int, length: int = 8) -> NDArray[np.int32]:
    return np.array([first] + [1] * (length - 1), dtype=np.int32)


def soon(seconds: float = 10) -> float:
    return time.monotonic() + seconds


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scenario

    asyncio.run(bounded())


def test_vectors_come_back_in_the_order_of_the_windows(
    batcher: Batcher, reports: list[BatchReport]
) -> None:
    async def scenario() -> None:
        windows = [window(100 + i, length) for i, length in enumerate([40, 8, 64, 9, 33, 8])]
        computed = await batcher.compute(windows, soon())
        assert computed.vectors[:, 0].tolist() == [100, 101, 102, 103, 104, 105]

    run(scenario())
    assert sum(report.tokens for report in reports) == 40 + 8 + 64 + 9 + 33 + 8
    assert all(report.padded_tokens >= report.tokens for report in reports)


def test_a_batch_that_raises_fails_alone(batcher: Batcher) -> None:
    async def scenario() -> None:
        # lengths apart, so that they share no batch
        bad = asyncio.create_task(batcher.compute([window(POISON, 64)], soon()))
        good = asyncio.create_task(batcher.compute([window(5, 8)], soon()))
        with pytest.raises(EngineFailedError):
            await bad
        assert (await good).vectors[0, 0] == 5

    run(scenario())
    assert batcher.queued_tokens == 0


def test_a_poisoned_window_fails_alone_even_in_a_shared_batch(
    batcher: Batcher, engine: FakeEngine
) -> None:
    async def scenario() -> None:
        engine.gate.clear()
        first = asyncio.create_task(batcher.compute([window(1, 64)], soon()))
        await until(lambda: engine.entered == 1)
        firsts = [5, POISON, 6, NAN, 7]
        tasks = [asyncio.create_task(batcher.compute([window(f)], soon())) for f in firsts]
        await until(lambda: batcher.queued_tokens == 8 * len(firsts))
        engine.gate.set()
        await first
        results = await asyncio.gather(*tasks, return_exceptions=True)
        good = [r.vectors[0, 0] for r in results if not isinstance(r, BaseException)]
        assert good == [5, 6, 7]
        assert all(isinstance(results[i], EngineFailedError) for i in (1, 3))

    run(scenario())
    assert max(len(batch) for batch in engine.batches) == 5, "they were to share a batch"
    assert batcher.queued_tokens == 0


def test_a_wedged_engine_is_seen(batcher: Batcher, engine: FakeEngine) -> None:
    async def scenario() -> None:
        assert batcher.longest_batch == 0
        engine.gate.clear()
        stuck = asyncio.create_task(batcher.compute([window(1)], soon()))
        await until(lambda: batcher.longest_batch > 0.05)
        engine.gate.set()
        await stuck
        await until(lambda: batcher.longest_batch == 0)

    run(scenario())


def test_vectors_that_are_not_finite_never_leave(batcher: Batcher) -> None:
    async def scenario() -> None:
        with pytest.raises(EngineFailedError):
            await batcher.compute([window(NAN)], soon())

    run(scenario())


def test_cancelled_work_is_dropped_before_it_costs_anything(
    batcher: Batcher, engine: FakeEngine
) -> None:
    async def scenario() -> None:
        engine.gate.clear()
        running = asyncio.create_task(batcher.compute([window(1, 64)], soon()))
        await until(lambda: engine.entered == 1)
        waiting = asyncio.create_task(batcher.compute([window(2, 64)], soon()))
        await until(lambda: batcher.queued_tokens == 64)
        waiting.cancel()
        await until(lambda: batcher.queued_tokens == 0)
        engine.gate.set()
        await running

    run(scenario())
    assert [batch[0, 0] for batch in engine.batches] == [1]


def test_the_deadline_passes_while_waiting_and_while_computing(
    batcher: Batcher, engine: FakeEngine
) -> None:
    async def scenario() -> None:
        engine.gate.clear()
        computing = asyncio.create_task(batcher.compute([window(1, 64)], soon(0.2)))
        await until(lambda: engine.entered == 1)
        waiting = asyncio.create_task(batcher.compute([window(2, 64)], soon(0.2)))
        for task in (computing, waiting):
            with pytest.raises(DeadlineError):
                await task
        assert batcher.queued_tokens == 0
        engine.gate.set()
        assert (await batcher.compute([window(3)], soon())).vectors[0, 0] == 3

    run(scenario())
    assert [batch[0, 0] for batch in engine.batches] == [1, 3]


def test_a_full_queue_refuses_and_says_when_to_come_back(
    batcher: Batcher, engine: FakeEngine
) -> None:
    async def scenario() -> None:
        await batcher.compute([window(1)], soon())
        engine.gate.clear()
        tasks = [asyncio.create_task(batcher.compute([window(1, 64)], soon()))]
        await until(lambda: engine.entered == 2)
        tasks += [asyncio.create_task(batcher.compute([window(1, 64)], soon())) for _ in range(3)]
        await until(lambda: batcher.queued_tokens == 192)
        with pytest.raises(OverloadedError) as refused:
            await batcher.compute([window(2, 64)], soon())
        assert refused.value.retry_after >= 1
        engine.gate.set()
        await asyncio.gather(*tasks)

    run(scenario())


def test_work_larger_than_the_queue_is_taken_when_nothing_waits(batcher: Batcher) -> None:
    async def scenario() -> None:
        computed = await batcher.compute([window(i + 20, 64) for i in range(20)], soon())
        assert len(computed.vectors) == 20

    run(scenario())
