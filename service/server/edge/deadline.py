"""The deadline of every request."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from service.errors import InvalidError

HEADER = "x-request-timeout"


def seconds(header: str | None, default: float, most: float) -> float:
    """Seconds that a request may take.

    Raises:
        InvalidError: the header is not a number of seconds above 0 and up to ``most``.
    """
    if header is None:
        return default
    try:
        asked = float(header)
    except ValueError:
        asked = math.nan
    if not 0 < asked <= most:
        raise InvalidError(f"{HEADER}: give seconds above 0 and up to {most:g}", HEADER)
    return asked


@asynccontextmanager
async def within(request: Request) -> AsyncIterator[None]:
    """Raises ``TimeoutError`` in the awaited code at the request's deadline."""
    async with asyncio.timeout(of(request) - time.monotonic()):
        yield


def of(request: Request) -> float:
    """The request's deadline on ``time.monotonic``'s clock; it was set when the head arrived."""
    deadline: float = request.scope["docsplit.deadline"]
    return deadline
