"""The order and the composition of batches."""

from __future__ import annotations

import numpy as np
import pytest

from service.embedding.batching.clients import UNNAMED, Client
from service.embedding.batching.queue import MIX, OVERHEAD, Job, WindowQueue


def job(
    *lengths: int, arrived: float = 0.0, deadline: float = 1e9, client: Client = UNNAMED
) -> Job:
    windows = [np.ones(n, dtype=np.int32) for n in lengths]
    return Job(windows, deadline, arrived, lambda _: None, client)


def lengths(queue: WindowQueue, now: float = 0.0) -> list[int]:
    return [window.length for window in queue.take(now)]


def test_a_batch_has_similar_lengths_within_the_budget() -> None:
    queue = WindowQueue(batch_tokens=512, age_limit=9)
    queue.add(job(*range(8, 257, 8)))
    while batch := queue.take(0):
        padded = batch[0].padded
        assert len(batch) * padded <= 512
        assert min(w.length for w in batch) >= padded * MIX - 8
    assert queue.tokens == 0


def test_windows_of_several_jobs_share_a_batch() -> None:
    queue = WindowQueue(batch_tokens=512, age_limit=9)
    jobs = [job(64), job(64), job(60)]
    for each in jobs:
        queue.add(each)
    assert {window.job for window in queue.take(0)} == set(jobs)


def test_windows_of_other_clients_fill_a_batch_if_padding_costs_less_than_a_batch() -> None:
    tokens = 2048
    for length, fit in ((64, 15), (56, int(tokens * OVERHEAD) // 8), (32, 0)):
        queue = WindowQueue(batch_tokens=tokens, age_limit=9)
        queue.add(job(*[64] * 17))
        queue.add(job(*[length] * 40, client=Client("other")))
        assert lengths(queue) == [64] * 17 + [length] * fit


def test_a_window_over_the_budget_gets_its_own_batch() -> None:
    queue = WindowQueue(batch_tokens=100, age_limit=9)
    queue.add(job(400, 400))
    assert lengths(queue) == [400]


def test_short_work_overtakes_a_long_document_in_progress() -> None:
    queue = WindowQueue(batch_tokens=512, age_limit=9)
    queue.add(job(*[512] * 20, arrived=0))
    assert lengths(queue) == [512]
    queue.add(job(16, arrived=1))
    assert lengths(queue, now=1) == [16]


def test_work_older_than_the_age_limit_goes_first() -> None:
    queue = WindowQueue(batch_tokens=512, age_limit=2)
    queue.add(job(*[512] * 20, arrived=0))
    queue.take(0)
    queue.add(job(16, arrived=2.5))
    assert lengths(queue, now=3) == [512]


def test_dropped_and_late_jobs_leave_nothing_behind() -> None:
    queue = WindowQueue(batch_tokens=512, age_limit=2)
    kept, dropped, late = job(64), job(64, 128), job(64, deadline=5)
    for each in (kept, dropped, late):
        queue.add(each)
    queue.drop(dropped)
    assert queue.expire(now=6) == [late]
    assert [window.job for window in queue.take(6)] == [kept]
    assert queue.take(6) == []
    assert (queue.tokens, len(queue), queue._backlogs) == (0, 0, {})


def test_dropping_twice_is_harmless() -> None:
    queue = WindowQueue(batch_tokens=512, age_limit=2)
    once = job(64)
    queue.add(once)
    queue.drop(once)
    queue.drop(once)
    assert queue.tokens == 0


@pytest.mark.parametrize("length", [1, 7, 8, 9, 511, 512])
def test_padding_is_less_than_a_rounding_step(length: int) -> None:
    window = next(iter(job(length).waiting))
    assert 0 <= window.padded - length < 8


def test_work_that_can_no_longer_meet_its_deadline_is_dropped_before_it_runs() -> None:
    queue = WindowQueue(batch_tokens=512, age_limit=9)
    late, early = job(64, 64, deadline=5), job(64, 64, deadline=8)
    # it would be late in any case, so it runs until the engine's rate is certain
    large = job(*[64] * 20, deadline=5)
    for each in (late, early, large):
        queue.add(each)
    assert queue.expire(now=4, rate=64) == [late]
    assert queue.tokens == early.waiting_tokens + large.waiting_tokens
    assert queue.expire(now=4) == [], "the rate is unknown"


def test_work_beyond_an_idle_engine_is_dropped_once_it_has_shown_the_rate() -> None:
    queue = WindowQueue(batch_tokens=64, age_limit=9)
    large, possible = job(*[64] * 20, deadline=5), job(*[64] * 5, deadline=5)
    for each in (large, possible):
        queue.add(each)
    assert queue.oversized(now=4, fastest=64) == [], "nothing has run"
    while large.first_taken is None or possible.first_taken is None:
        queue.take(now=1)
    assert queue.oversized(now=3, fastest=64) == []
    assert queue.oversized(now=3.1, fastest=256) == [], "a fast batch shows that it can be done"
    assert queue.oversized(now=3.1, fastest=255) == [large]
    assert queue.tokens == possible.waiting_tokens


def test_the_estimate_for_a_job_counts_the_jobs_before_it() -> None:
    queue = WindowQueue(batch_tokens=512, age_limit=9)
    asked = job(64)
    assert queue.until_done(asked, rate=64) == 1
    queue.add(job(32))
    queue.add(job(512, 512))
    assert queue.until_done(asked, rate=64) == 1.5
