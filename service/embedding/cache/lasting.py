"""Work whose vectors outlive the answer: they are stored in an index, or train a head.

Such work takes no vector that somebody else may have written to the cache, since the wrong one
would stay wrong after the cache has forgotten it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[bool] = ContextVar("lasting", default=False)


def current() -> bool:
    """Whether the running task's vectors are stored."""
    return _current.get()


@contextmanager
def work() -> Iterator[None]:
    """The vectors of what runs inside, and of tasks that it starts, are stored."""
    token = _current.set(True)
    try:
        yield
    finally:
        _current.reset(token)
