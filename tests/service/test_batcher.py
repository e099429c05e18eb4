"""The batcher under faults; the engine is a fake, for timing and failures only."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from docsplit.engines.choice import Arithmetic, EngineName
from service.embedding.batching import queue
from service.embedding.batching.batcher import Batcher, Rate
from service.embedding.batching.clients import Client, working_for
from service.embedding.batching.queue import BatchReport
from service.errors import DeadlineError, EngineFailedError, OverloadedError, TooMuchError
from tests.conftest import until

POISON = 13
NAN = 14


class FakeEngine:
    """Returns the first token of each row; waits at a gate; fails on POISON."""

    name: EngineName = "onnx-cpu"
    arithmetic: Arithmetic = "f32"
    device = "CPU"
    streams = 1
    batch_tokens = 64

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = 0
        self.memory = 10_000
        self.stop_at = 0
        self.batches: list[NDArray[np.int64]] = []

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        self.entered += 1
        if self.entered == self.stop_at:
            self.gate.clear()
        self.gate.wait(10)
        self.batches.append(input_ids)
        if (input_ids == POISON).any():
            raise RuntimeError("poisoned")
        if input_ids.size > self.memory:
            raise MemoryError if self.entered % 2 else RuntimeError("std::bad_alloc")
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


async def test_vectors_have_the_order_of_the_windows(
    batcher: Batcher, reports: list[BatchReport]
) -> None:
    windows = [window(100 + i, length) for i, length in enumerate([40, 8, 64, 9, 33, 8])]
    computed = await batcher.compute(windows, soon())
    assert computed.vectors[:, 0].tolist() == [100, 101, 102, 103, 104, 105]
    assert sum(report.tokens for report in reports) == 40 + 8 + 64 + 9 + 33 + 8
    assert all(report.padded_tokens >= report.tokens for report in reports)


async def test_a_batch_that_raises_fails_no_other_batch(batcher: Batcher) -> None:
    # different lengths, so that they share no batch
    bad = asyncio.create_task(batcher.compute([window(POISON, 64)], soon()))
    good = asyncio.create_task(batcher.compute([window(5, 8)], soon()))
    with pytest.raises(EngineFailedError):
        await bad
    assert (await good).vectors[0, 0] == 5
    assert batcher.queued_tokens == 0


async def test_a_poisoned_window_fails_no_other_window_of_its_batch(
    batcher: Batcher, engine: FakeEngine
) -> None:
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
    assert max(len(batch) for batch in engine.batches) == 5, "they should share a batch"
    assert batcher.queued_tokens == 0


async def test_a_hanging_engine_is_noticed(batcher: Batcher, engine: FakeEngine) -> None:
    assert batcher.longest_batch == 0
    engine.gate.clear()
    stuck = asyncio.create_task(batcher.compute([window(1)], soon()))
    await until(lambda: batcher.longest_batch > 0.05)
    engine.gate.set()
    await stuck
    await until(lambda: batcher.longest_batch == 0)


async def test_vectors_that_are_not_finite_are_never_returned(batcher: Batcher) -> None:
    with pytest.raises(EngineFailedError):
        await batcher.compute([window(NAN)], soon())


async def test_cancelled_work_is_dropped_before_it_runs(
    batcher: Batcher, engine: FakeEngine
) -> None:
    engine.gate.clear()
    running = asyncio.create_task(batcher.compute([window(1, 64)], soon()))
    await until(lambda: engine.entered == 1)
    waiting = asyncio.create_task(batcher.compute([window(2, 64)], soon()))
    await until(lambda: batcher.queued_tokens == 64)
    waiting.cancel()
    await until(lambda: batcher.queued_tokens == 0)
    engine.gate.set()
    await running
    assert [batch[0, 0] for batch in engine.batches] == [1]


async def test_the_deadline_passes_while_waiting_and_while_computing(
    batcher: Batcher, engine: FakeEngine
) -> None:
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
    assert [batch[0, 0] for batch in engine.batches] == [1, 3]


async def test_a_full_queue_refuses_and_says_when_to_try_again(
    batcher: Batcher, engine: FakeEngine
) -> None:
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


async def test_work_larger_than_the_queue_is_accepted_when_nothing_waits(batcher: Batcher) -> None:
    computed = await batcher.compute([window(i + 20, 64) for i in range(20)], soon())
    assert len(computed.vectors) == 20


async def test_a_batch_too_large_for_memory_is_halved_until_it_fits(
    batcher: Batcher, engine: FakeEngine
) -> None:
    engine.memory = 16

    windows = [window(20 + i) for i in range(8)]
    computed = await batcher.compute(windows, soon())
    assert computed.vectors[:, 0].tolist() == [20 + i for i in range(8)]
    assert {batch.size for batch in engine.batches} == {64, 32, 16}


async def test_a_failed_request_hands_over_its_computed_vectors(batcher: Batcher) -> None:
    kept: dict[int, float] = {}

    def partial(positions: Sequence[int], vectors: NDArray[np.float32]) -> None:
        kept.update(zip(positions, vectors[:, 0].tolist(), strict=True))

    windows = [window(f) for f in (5, POISON, 6, 7, NAN, 8)]
    with pytest.raises(EngineFailedError):
        await batcher.compute(windows, soon(), partial)
    assert kept == {0: 5, 2: 6, 3: 7, 5: 8}
    kept.clear()
    await batcher.compute([window(9)], soon(), partial)
    assert kept == {}, "complete work is never partial"


async def test_a_cancelled_request_hands_over_its_computed_vectors(
    batcher: Batcher, engine: FakeEngine
) -> None:
    kept: list[int] = []

    engine.stop_at = 3

    windows = [window(20 + i, 64) for i in range(6)]
    job = batcher.compute(windows, soon(), lambda positions, _: kept.extend(positions))
    giving_up = asyncio.create_task(job)
    await until(lambda: engine.entered == 3)
    giving_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await giving_up
    assert kept == [0, 1]


async def compute_for(name: str, batcher: Batcher, *windows: NDArray[np.int32]) -> None:
    with working_for(Client(name)):
        await batcher.compute(windows, soon())


async def test_one_clients_flood_leaves_room_for_another_client(
    batcher: Batcher, engine: FakeEngine
) -> None:
    await compute_for("flood", batcher, window(1))
    engine.gate.clear()
    running = asyncio.create_task(compute_for("flood", batcher, window(1, 64)))
    await until(lambda: engine.entered == 2)
    flood = [asyncio.create_task(compute_for("flood", batcher, window(2))) for _ in range(100)]
    # one client by itself may have 200 tokens waiting
    await until(lambda: sum(task.done() for task in flood) == 75)
    assert batcher.queued_tokens == 200
    refused = [task.exception() for task in flood if task.done()]
    assert all(isinstance(error, OverloadedError) for error in refused)
    other = asyncio.create_task(compute_for("other", batcher, window(3)))
    await until(lambda: batcher.queued_tokens == 208)
    engine.gate.set()
    await asyncio.gather(other, running, *(task for task in flood if not task.done()))
    firsts = [set(batch[:, 0].tolist()) for batch in engine.batches]
    assert 3 in firsts[2], "the other client's request goes next, after 25 of the flood's"


async def test_the_queue_is_bounded_for_any_number_of_clients(
    batcher: Batcher, engine: FakeEngine
) -> None:
    engine.gate.clear()
    running = asyncio.create_task(compute_for("first", batcher, window(1, 64)))
    await until(lambda: engine.entered == 1)
    tasks = [
        asyncio.create_task(compute_for(str(client), batcher, window(2)))
        for _ in range(60)
        for client in range(60)
    ]
    await until(lambda: batcher.queued_tokens + 8 * sum(t.done() for t in tasks) == 3600 * 8)
    assert 200 < batcher.queued_tokens <= 400
    engine.gate.set()
    outcomes = await asyncio.gather(running, *tasks, return_exceptions=True)
    assert {type(o) for o in outcomes} == {type(None), OverloadedError}


async def test_retry_after_follows_from_the_measured_rate(
    batcher: Batcher, engine: FakeEngine
) -> None:
    await compute_for("flood", batcher, window(1))
    batcher._rate.add(10**6, 10**6)
    engine.gate.clear()
    tasks = [asyncio.create_task(compute_for("flood", batcher, window(1, 64)))]
    await until(lambda: engine.entered == 2)
    tasks += [asyncio.create_task(compute_for("flood", batcher, window(1, 64)))]
    tasks += [asyncio.create_task(compute_for("flood", batcher, window(1, 64)))]
    await until(lambda: batcher.queued_tokens == 128)
    with pytest.raises(OverloadedError) as own:
        await compute_for("flood", batcher, *[window(2, 40)] * 2)
    # 208 tokens held against 192 free are 16 too many; a served token counts on both sides
    assert own.value.retry_after == pytest.approx(8)
    with pytest.raises(OverloadedError) as huge:
        await compute_for("other", batcher, *[window(2, 40)] * 10)
    assert huge.value.retry_after == pytest.approx(128), "until nothing waits"
    engine.gate.set()
    await asyncio.gather(*tasks)


async def test_work_that_would_wait_past_its_deadline_is_refused_at_once(
    batcher: Batcher, engine: FakeEngine
) -> None:
    batcher._rate.add(64, 1)
    engine.gate.clear()
    tasks = [asyncio.create_task(batcher.compute([window(1, 64)], soon()))]
    await until(lambda: engine.entered == 1)
    tasks += [asyncio.create_task(batcher.compute([window(2, 64)], soon()))]
    await until(lambda: batcher.queued_tokens == 64)
    with pytest.raises(OverloadedError) as refused:
        await batcher.compute([window(3, 64)], soon(1.5))
    assert refused.value.retry_after == pytest.approx(1, abs=0.6)
    tasks += [asyncio.create_task(batcher.compute([window(3, 64)], soon()))]
    await until(lambda: batcher.queued_tokens == 128)
    engine.gate.set()
    await asyncio.gather(*tasks)


async def test_work_beyond_the_deadline_is_refused_with_the_numbers_and_keeps_what_is_done(
    batcher: Batcher, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    def keep(positions: Sequence[int], _: NDArray[np.float32]) -> None:
        kept.extend(positions)

    monkeypatch.setattr(queue, "PROBE", 0.0)
    monkeypatch.setattr(Rate, "add", lambda rate, *_: setattr(rate, "fastest", 64.0))
    batcher._rate.add(1, 1)
    with pytest.raises(TooMuchError) as refused:
        await batcher.compute([window(1, 64)] * 100, soon(10), keep)
    said = str(refused.value)
    assert "6,400 tokens take at least 100 s at 64 a second, and this request has 10 s" in said
    assert "application/x-ndjson" in said
    assert "x-request-timeout" in said
    assert kept
    assert len((await batcher.compute([window(1, 64)] * 100, soon(1000))).vectors) == 100


async def test_the_only_batch_gets_all_cores(batcher: Batcher, engine: FakeEngine) -> None:
    single = FakeEngine()
    batcher.model.single_stream = single

    await batcher.compute([window(1)], soon())
    assert (len(single.batches), len(engine.batches)) == (1, 0)
    await batcher.compute([window(2, 64), window(3, 64)], soon())
    assert (len(single.batches), len(engine.batches)) == (2, 1), "two at once"
