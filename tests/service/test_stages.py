"""Stages: measured with and without a trace, nested, and with their failures."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from docsplit.windowing.pooling import Vectors
from service.embedding.batching.batcher import Batcher
from service.embedding.cache.layers import Cache, ProcessCache
from service.errors import DeadlineError, EngineFailedError
from service.tracing.exporter import RecordedSpan
from service.tracing.stages import Stage, current, record
from tests.service.test_batcher import POISON, FakeEngine, window


class BusyEngine(FakeEngine):
    """Signals when it has a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = threading.Event()

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        self.busy.set()
        return super().run(input_ids, mask)


class Trace:
    """The span of a request and the finished spans below it."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._memory))
        tracer = provider.get_tracer("test")
        shift = time.time_ns() - time.monotonic_ns()
        self.root = RecordedSpan(tracer, tracer.start_span("request"), shift)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._memory.get_finished_spans()}

    def parent(self, name: str) -> str | None:
        parent = self.spans[name].parent
        names = {s.context.span_id: s.name for s in self.spans.values() if s.context is not None}
        return None if parent is None else names.get(parent.span_id, "request")


def test_a_stage_is_measured_without_a_trace() -> None:
    with Stage("work") as stage:
        time.sleep(0.01)
        running = stage.seconds
    assert 0.01 <= running <= stage.seconds
    measured = stage.seconds
    time.sleep(0.001)
    assert stage.seconds == measured


def test_stages_nest_and_a_stopped_stage_gets_no_more_children() -> None:
    trace = Trace()
    with current(trace.root), Stage("outer") as outer:
        with Stage("inside"):
            pass
        outer.stop()
        seconds = outer.seconds
        with Stage("behind"):
            time.sleep(0.001)
        outer.note({"late": 1})
    assert outer.seconds == seconds
    assert {name: trace.parent(name) for name in trace.spans} == {
        "inside": "outer",
        "behind": "request",
        "outer": "request",
    }
    spans = trace.spans
    assert spans["outer"].attributes == {"late": 1}
    assert (spans["outer"].end_time or 0) <= (spans["behind"].start_time or 0)


def test_an_error_belongs_to_the_stage_in_which_it_happened() -> None:
    trace = Trace()

    def work() -> None:
        with Stage("over") as over:
            over.stop()
            with Stage("fails"):
                raise ValueError("secret")

    with current(trace.root), pytest.raises(ValueError, match="secret"):
        work()
    fails, over_span = trace.spans["fails"], trace.spans["over"]
    assert fails.attributes == {"error.type": "ValueError"}
    assert (fails.status.is_ok, over_span.status.is_ok) == (False, True)
    assert "secret" not in fails.to_json()


def test_work_that_outlives_its_request_adds_nothing() -> None:
    trace = Trace()
    with current(trace.root):
        with Stage("in time"):
            pass
        trace.root.end(time.monotonic(), {})
        with Stage("too late"):
            record("also too late", 0.0, 1.0, {})
    assert set(trace.spans) == {"in time", "request"}


async def test_tasks_of_a_request_see_its_trace_and_others_do_not() -> None:
    trace = Trace()

    async def work(name: str) -> None:
        with Stage(name):
            await asyncio.sleep(0)

    with current(trace.root):
        task = asyncio.create_task(work("ours"))
    await asyncio.gather(task, work("theirs"))
    assert set(trace.spans) == {"ours"}


async def compute(batcher: Batcher, trace: Trace, first: int, seconds: float) -> None:
    with current(trace.root):
        await batcher.compute([window(first)], time.monotonic() + seconds)


def failures(trace: Trace) -> dict[str, object]:
    return {name: (span.attributes or {}).get("error.type") for name, span in trace.spans.items()}


async def test_a_batch_that_fails_marks_infer_and_a_deadline_in_the_queue_marks_queue() -> None:
    engine = BusyEngine()
    batcher = Batcher(engine, batch_tokens=8, queue_tokens=200, age_limit=5, pad_token_id=0)
    well, poisoned, late = Trace(), Trace(), Trace()
    await compute(batcher, well, 1, 10)
    assert failures(well) == {"queue": None, "infer": None}
    with pytest.raises(EngineFailedError):
        await compute(batcher, poisoned, POISON, 10)
    assert failures(poisoned) == {"queue": None, "infer": "EngineFailedError"}
    engine.busy.clear()
    engine.gate.clear()

    before = asyncio.create_task(batcher.compute([window(2)], time.monotonic() + 10))
    assert await asyncio.to_thread(engine.busy.wait, 10)
    with current(late.root), pytest.raises(DeadlineError):
        await batcher.compute([window(3)], time.monotonic() + 0.05)
    engine.gate.set()
    await before
    assert failures(late) == {"queue": "DeadlineError"}
    batcher.close()


async def test_of_two_requests_for_one_window_only_one_computes_in_its_trace() -> None:
    first, second = Trace(), Trace()

    async def compute(keys: Sequence[bytes]) -> Vectors:
        with Stage("compute"):
            await asyncio.sleep(0.02)
        return np.zeros((len(keys), 4), dtype=np.float32)

    async def ask(cache: Cache, trace: Trace) -> None:
        with current(trace.root), Stage("cache"):
            await cache.get([b"1"], compute)

    cache = Cache(ProcessCache(0))
    await asyncio.gather(ask(cache, first), ask(cache, second))
    assert set(first.spans) == {"compute", "cache"}
    assert set(second.spans) == {"cache"}
