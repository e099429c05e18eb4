"""The order in which the queue serves clients, and the jobs of one client."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from service.embedding.batching.clients import BACKGROUND, Client, overflow
from service.embedding.batching.queue import Job, Window, WindowQueue

FLOOD, OTHER, THIRD = Client("flood"), Client("other"), Client("third")
FOR_EVER = 1e9


def job(client: Client, *lengths: int, arrived: float = 0.0) -> Job:
    ids = [np.ones(n, dtype=np.int32) for n in lengths]
    return Job(ids, FOR_EVER, arrived, lambda _: None, client)


def filled(*jobs: Job, age_limit: float = FOR_EVER) -> WindowQueue:
    queue = WindowQueue(batch_tokens=512, age_limit=age_limit)
    for each in jobs:
        queue.add(each)
    return queue


def tokens(batch: list[Window]) -> Counter[Client]:
    counted: Counter[Client] = Counter()
    for window in batch:
        counted[window.job.client] += window.length
    return counted


def test_a_flood_does_not_delay_another_clients_request() -> None:
    queue = filled(*(job(FLOOD, 256, 256) for _ in range(100)))
    queue.take(0)
    late = job(OTHER, 300, arrived=1)
    queue.add(late)
    assert {window.job for window in queue.take(1)} == {late}


def test_a_flood_gains_no_priority_by_its_age() -> None:
    queue = filled(*(job(FLOOD, 256, 256) for _ in range(100)), age_limit=2)
    queue.take(0)
    late = job(OTHER, 300, arrived=99)
    queue.add(late)
    assert {window.job for window in queue.take(99)} == {late}


def test_within_one_client_the_same_flood_goes_first_by_its_age() -> None:
    """The control: within one client, jobs over the limit run in the order of their age."""
    queue = filled(*(job(FLOOD, 256, 256) for _ in range(100)), age_limit=2)
    queue.take(0)
    late = job(FLOOD, 300, arrived=99)
    queue.add(late)
    assert late not in {window.job for window in queue.take(99)}


def test_clients_share_the_engine_by_tokens_not_by_requests() -> None:
    many = [job(FLOOD, 120) for _ in range(400)]
    few = [job(OTHER, *[500] * 50), job(OTHER, *[500] * 50)]
    queue = filled(*many, *few)
    served: Counter[Client] = Counter()
    for _ in range(40):
        served += tokens(queue.take(0))
    assert served[FLOOD] == pytest.approx(served[OTHER], rel=0.06)


def test_a_flood_of_similar_lengths_does_not_fill_other_clients_batches() -> None:
    queue = filled(*(job(FLOOD, *[64] * 16) for _ in range(50)))
    queue.take(0)
    asked = job(OTHER, *[64] * 16, arrived=1)
    queue.add(asked)
    for _ in range(3):
        queue.take(1)
    assert not asked.waiting, "its two batches and one of the flood's between them"


def test_unused_room_goes_to_the_other_clients() -> None:
    queue = filled(job(OTHER, 64), *(job(FLOOD, 64) for _ in range(20)))
    batch = queue.take(0)
    assert batch[0].job.client is OTHER
    assert tokens(batch) == {OTHER: 64, FLOOD: 7 * 64}


def test_the_background_gets_a_sixteenth() -> None:
    queue = filled(job(BACKGROUND, *[500] * 400), job(OTHER, *[500] * 400))
    served: Counter[Client] = Counter()
    for _ in range(170):
        served += tokens(queue.take(0))
    assert served[BACKGROUND] / served[OTHER] == pytest.approx(1 / 16, rel=0.1)


def test_the_background_gets_everything_when_nobody_else_waits() -> None:
    queue = filled(job(BACKGROUND, *[500] * 3))
    assert sum(len(queue.take(0)) for _ in range(3)) == 3


def test_an_endless_series_of_new_clients_starves_nobody() -> None:
    queue = filled(job(FLOOD, *[500] * 100))
    turns = 0
    for number in range(100):
        if queue.tokens == queue.held(FLOOD):
            queue.add(job(Client(f"new {number}"), 500, arrived=number))
        turns += FLOOD in tokens(queue.take(number))
    assert turns == pytest.approx(50, abs=2)


def test_a_returning_client_keeps_its_virtual_time() -> None:
    """Otherwise a client would get more by sending one request after another."""
    queue = filled(job(FLOOD, *[500] * 100), job(OTHER, *[500] * 100))
    served: Counter[Client] = Counter()
    for _ in range(90):
        if not queue.held(THIRD):
            queue.add(job(THIRD, 500))
        served += tokens(queue.take(0))
    assert served[THIRD] == pytest.approx(30 * 500, abs=1000)


def test_the_queue_forgets_all_clients_once_it_is_empty() -> None:
    queue = WindowQueue(batch_tokens=512, age_limit=9)
    for number in range(1000):
        queue.add(job(Client(str(number)), 500))
        queue.take(0)
    assert len(queue._ahead) <= 1
    busy = filled(job(FLOOD, *[500] * 3000))
    for number in range(1000):
        busy.add(job(Client(str(number)), 500))
        busy.take(0)
        busy.take(0)
    assert len(busy._ahead) <= 4


def test_the_job_with_the_least_work_left_goes_first() -> None:
    """This includes documents that came earlier and have had nothing yet."""
    documents = [job(FLOOD, *[400] * 5, arrived=number) for number in range(3)]
    short = job(FLOOD, 100, arrived=9)
    queue = filled(*documents, short)
    assert queue.take(9)[0].job is short
    first = queue.take(9)[0].job
    assert first is documents[0]
    assert [queue.take(9)[0].job for _ in range(4)] == [first] * 4, "one ends before others begin"


@pytest.mark.parametrize(
    "bulk", [[64] * 2048, [510] * 126], ids=["2,048 inputs", "a long document"]
)
def test_bulk_delays_no_short_request_of_its_client_and_still_ends(
    bulk: list[int],
) -> None:
    large = job(FLOOD, *bulk)
    queue = filled(large, age_limit=2)
    queue.take(0)
    now, batches = 0.0, 0
    while large.waiting:
        now += 0.5
        short = job(FLOOD, 16, arrived=now)
        queue.add(short)
        first = queue.take(now)
        batches += 1
        if now <= 2:
            assert first[0].job is short
        # beyond the age limit the bulk may lead once, and then the short one follows
        else:
            assert {large, short} <= {window.job for window in first + queue.take(now)}
        assert batches < 2 * len(bulk)
    assert queue.tokens <= 16 * batches


def led_by_long(age_limit: float) -> int:
    """How many of 40 batches an aged document leads while short work could fill every batch."""
    document = job(FLOOD, *[512] * 100)
    queue = filled(document, age_limit=age_limit)
    queue.take(0)
    led = 0
    for _ in range(40):
        queue.add(job(FLOOD, 256, 256, arrived=99))
        led += queue.take(99)[0].job is document
    return led


def test_an_aged_document_gets_only_a_quarter_of_the_batches() -> None:
    assert 8 <= led_by_long(age_limit=2) <= 11
    assert led_by_long(FOR_EVER) == 0


@pytest.mark.parametrize("greedy", [1, 2, 3, 9])
def test_thresholds_converge_to_equal_parts_and_leave_one_for_a_newcomer(greedy: int) -> None:
    capacity, held = 10_000, [0] * greedy
    for _ in range(capacity):
        for client in range(greedy):
            if overflow(capacity, sum(held), held[client], 1) <= 0:
                held[client] += 1
    assert held == pytest.approx([capacity / (greedy + 1)] * greedy, abs=2)
    newcomer = capacity // (2 * (greedy + 1)) - 2
    assert overflow(capacity, sum(held), 0, newcomer) <= 0


def test_the_total_never_exceeds_the_capacity() -> None:
    rng = np.random.default_rng(0)
    held: Counter[int] = Counter()
    for _ in range(5000):
        client, amount = int(rng.integers(500)), int(rng.integers(1, 400))
        if overflow(10_000, held.total(), held[client], amount) <= 0:
            held[client] += amount
    assert 9_000 < held.total() <= 10_000
