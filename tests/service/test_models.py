"""Two models in one queue: a re-ranker beside the encoder."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from docsplit.engines.choice import Arithmetic, EngineName
from service.embedding.batching.batcher import Batcher
from service.embedding.batching.clients import Client
from service.embedding.batching.queue import BatchReport, Job, Model, WindowQueue
from service.server.reranking import relative_cost

ENCODES, RANKS = Client("encodes"), Client("ranks")


class FakeEngine:
    """Returns the number of columns of each row, plus a constant."""

    name: EngineName = "onnx-cpu"
    arithmetic: Arithmetic = "f32"
    device = "CPU"
    streams = 1
    batch_tokens = 512

    def __init__(self, constant: float) -> None:
        self.constant = constant
        self.rows = 0
        self.pads: set[int] = set()

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        self.pads |= set(input_ids[mask == 0].tolist())
        self.rows += len(mask)
        return (mask.sum(axis=1, keepdims=True) + self.constant).astype(np.float32)


def job(client: Client, model: Model, *lengths: int) -> Job:
    ids = [np.ones(n, dtype=np.int32) for n in lengths]
    return Job(ids, 1e9, 0.0, lambda _: None, client, model)


def test_a_batch_holds_windows_of_one_model() -> None:
    encoder, reranker = Model(FakeEngine(0), 0), Model(FakeEngine(1), 0)
    queue = WindowQueue(batch_tokens=512, age_limit=9)
    for each in (job(ENCODES, encoder, *[64] * 20), job(RANKS, reranker, *[64] * 20)):
        queue.add(each)
    taken: Counter[Model | None] = Counter()
    while batch := queue.take(0):
        [model] = {window.job.model for window in batch}
        taken[model] += len(batch)
    assert taken == {encoder: 20, reranker: 20}
    assert queue.tokens == 0


@pytest.mark.parametrize(("cost", "share"), [(1.0, 1.0), (4.0, 0.25)])
def test_clients_of_both_models_get_equal_time(cost: float, share: float) -> None:
    encoder, reranker = Model(FakeEngine(0), 0), Model(FakeEngine(1), 0, cost=cost)
    queue = WindowQueue(batch_tokens=512, age_limit=9)
    queue.add(job(ENCODES, encoder, *[128] * 400))
    queue.add(job(RANKS, reranker, *[128] * 400))
    assert queue.held(RANKS) == 400 * 128 * cost
    served: Counter[Model | None] = Counter()
    for _ in range(80):
        for window in queue.take(0):
            served[window.job.model] += window.length
    assert served[reranker] / served[encoder] == pytest.approx(share, rel=0.1)


@pytest.fixture
def batcher() -> Iterator[Batcher]:
    running = Batcher(
        FakeEngine(0), batch_tokens=512, queue_tokens=4096, age_limit=9, pad_token_id=7
    )
    yield running
    running.close()


def test_each_model_computes_and_reports_its_own_windows(batcher: Batcher) -> None:
    reports: list[BatchReport] = []
    engine = FakeEngine(1000)
    reranker = Model(engine, 9, reports.append)

    async def both() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        windows = [np.ones(n, dtype=np.int32) for n in (5, 9, 12)]
        deadline = time.monotonic() + 30
        own, other = await asyncio.gather(
            batcher.compute(windows, deadline),
            batcher.compute(windows, deadline, model=reranker),
        )
        return own.vectors, other.vectors

    own, other = asyncio.run(both())
    assert own[:, 0].tolist() == [5, 9, 12]
    assert other[:, 0].tolist() == [1005, 1009, 1012]
    assert sum(report.windows for report in reports) == 3
    assert engine.pads == {9}


def test_the_cost_of_a_token_is_measured_in_turn() -> None:
    slow, fast = FakeEngine(0), FakeEngine(0)

    def clock() -> float:
        return 8.0 * slow.rows + 2.0 * fast.rows

    assert relative_cost(slow, fast, 64, clock) == 4
    assert relative_cost(fast, slow, 64, clock) == 0.25
    assert slow.rows == fast.rows > 2
