"""What the running request costs its key, charged as soon as the size of its work is known.

Whoever leaves pays for what was begun. A charge is given back only where the queue had no room.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from service.embedding.batching import clients
from service.errors import OverloadedError
from service.keys.rate import Bucket

_current: ContextVar[Bucket | None] = ContextVar("charged", default=None)


@contextmanager
def charging(tokens: Bucket) -> Iterator[None]:
    """What runs inside, and tasks that it starts, is charged to ``tokens``."""
    token = _current.set(tokens)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def charged(tokens: int) -> Iterator[None]:
    """Charge the running request for work that begins inside.

    Nobody is charged for work in the background, which a request may have started.

    Args:
        tokens: that the model reads.
    """
    bucket = None if clients.current() is clients.BACKGROUND else _current.get()
    if bucket is None:
        yield
        return
    bucket.take(tokens)
    try:
        yield
    except OverloadedError:
        bucket.take(-tokens)
        raise
