"""Mark work whose vectors outlive the answer: an index stores them, or they train a head.

Such work uses no vector that another party may have written to the cache. A wrong vector would
stay in the index after the cache has forgotten it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[bool] = ContextVar("lasting", default=False)


def current() -> bool:
    """Whether the running task's vectors will be stored."""
    return _current.get()


@contextmanager
def work() -> Iterator[None]:
    """Mark the vectors of the block, and of tasks that it starts, as stored."""
    token = _current.set(True)
    try:
        yield
    finally:
        _current.reset(token)
