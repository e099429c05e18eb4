"""Charges the tokens that a request has computed to its key."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from service.embedding.batching import clients
from service.errors import OverloadedError
from service.keys.ring import Bucket

_current: ContextVar[Bucket | None] = ContextVar("charged", default=None)


def payer() -> Bucket | None:
    """What the running work is charged to."""
    return _current.get()


async def out_of_debt() -> None:
    """Wait until the key of the running work may have more tokens computed."""
    bucket = _current.get()
    if bucket is not None:
        await asyncio.sleep(bucket.wait(0.0))


@contextmanager
def charging(tokens: Bucket | None) -> Iterator[None]:
    """Charge the block, and tasks that it starts, to ``tokens``."""
    token = _current.set(tokens)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def charged(tokens: int) -> Iterator[None]:
    """Charge the running request for the work of the block.

    Background work is free, even if a request started it.

    Args:
        tokens: number of tokens that the model reads.
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
