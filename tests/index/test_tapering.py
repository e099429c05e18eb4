"""Batches that become smaller at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from docsplit.corpora.documents import Document
from service.bulk.loader import BATCH_DOCUMENTS, LEAST_CHARACTERS, Batch, tapered

AHEAD = 4


def batch_of(first: int, count: int, characters: int) -> Batch:
    return [Document(str(first + i), "x" * characters) for i in range(count)]


def size(batch: Batch) -> int:
    return sum(len(document.text) for document in batch)


def last_end(batches: Sequence[Batch]) -> int:
    """When the later of two workers ends that each take a next batch when they are free."""
    ends = [0, 0]
    for batch in batches:
        ends.sort()
        ends[0] += size(batch)
    return max(ends)


def test_two_workers_end_together() -> None:
    whole = [batch_of(20 * i, 20, 20_000) for i in range(7)]
    found = list(tapered(iter(whole), AHEAD))
    assert [document for batch in found for document in batch] == [d for b in whole for d in b]
    assert found[:3] == whole[:3]
    sizes = [size(batch) for batch in found]
    assert sizes == sorted(sizes, reverse=True)
    half = sum(sizes) / 2
    assert last_end(found) < 1.02 * half
    # control: whole batches leave one worker idle
    assert last_end(whole) > 1.1 * half


@pytest.mark.parametrize(("count", "characters"), [(1, 5 * LEAST_CHARACTERS), (600, 1)])
def test_no_batch_is_too_large_or_empty(count: int, characters: int) -> None:
    found = list(tapered(iter([batch_of(0, count, characters)]), AHEAD))
    assert sum(map(len, found)) == count
    assert all(1 <= len(batch) <= BATCH_DOCUMENTS for batch in found)
    assert list(tapered(iter([]), AHEAD)) == []


def test_few_batches_are_read_in_advance() -> None:
    read = 0

    def batches() -> Iterator[Batch]:
        nonlocal read
        for read in range(1, 100):
            yield batch_of(read, 1, 10)

    found = tapered(batches(), AHEAD)
    next(found)
    assert read == AHEAD + 1
    next(found)
    assert read == AHEAD + 2
