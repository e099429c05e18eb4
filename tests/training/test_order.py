"""Shuffling and batching."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from training.data.batches import BatchOrder
from training.data.chunks import plan_chunks


@given(
    count=st.integers(8, 90),
    batch_size=st.integers(2, 8),
    group=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_an_epoch_gives_each_document_at_most_once(
    count: int, batch_size: int, group: int, seed: int
) -> None:
    documents = [10 * i for i in range(count)]
    order = BatchOrder(documents, lambda d: d % 70, batch_size=batch_size, group=group, seed=seed)
    batches = [order[i] for i in range(order.per_epoch)]
    drawn = [d for batch in batches for d in batch]
    assert all(len(batch) == batch_size for batch in batches)
    assert len(set(drawn)) == len(drawn)
    assert len(drawn) > count - batch_size
    assert set(drawn) <= set(documents)
    # Each batch is available by its number.
    again = BatchOrder(documents, lambda d: d % 70, batch_size=batch_size, group=group, seed=seed)
    assert again[order.per_epoch - 1] == batches[-1]


def test_epochs_differ_and_groups_have_similar_lengths() -> None:
    def spread(group: int) -> int:
        order = BatchOrder(range(400), lambda d: d, batch_size=10, group=group, seed=0)
        return sum(max(order[i]) - min(order[i]) for i in range(40))

    order = BatchOrder(range(400), lambda d: d, batch_size=10, group=8, seed=0)
    assert [order[i] for i in range(40)] != [order[i] for i in range(40, 80)]
    assert spread(8) < spread(1) / 4


@given(
    lengths=st.lists(st.integers(3, 512), min_size=1, max_size=60),
    budget=st.integers(16, 4_096),
    processes=st.integers(1, 4),
)
def test_chunks_hold_every_row_once(lengths: list[int], budget: int, processes: int) -> None:
    chunks = plan_chunks(lengths, budget, processes)
    assert sorted(i for chunk in chunks for i in chunk) == list(range(len(lengths)))
    for chunk in chunks:
        assert sum(lengths[i] for i in chunk) <= budget + max(lengths)
    shortest = [min(lengths[i] for i in chunk) for chunk in chunks]
    assert shortest == sorted(shortest, reverse=True)


def test_chunks_are_shared_evenly() -> None:
    chunks = plan_chunks([100] * 64, 10_000, 4)
    assert [len(chunk) for chunk in chunks] == [16] * 4
