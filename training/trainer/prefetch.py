"""Prepare batches in advance."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from training.trainer.preparation import Batch


@contextmanager
def prefetch(
    prepare: Callable[[int], Batch], first: int, last: int, workers: int
) -> Iterator[Iterator[Batch]]:
    """Batches ``first`` to ``last - 1`` in order.

    Each of ``workers`` threads prepares one batch in advance. Without workers each batch is
    prepared when it is needed.
    """
    if workers == 0:
        yield map(prepare, range(first, last))
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="prepare")
    try:
        yield _ahead(pool, prepare, first, last, workers + 1)
    finally:
        pool.shutdown(cancel_futures=True)


def _ahead(
    pool: ThreadPoolExecutor, prepare: Callable[[int], Batch], first: int, last: int, depth: int
) -> Iterator[Batch]:
    waiting: deque[Future[Batch]] = deque()
    for number in range(first, last):
        waiting.append(pool.submit(prepare, number))
        if len(waiting) > depth:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
