"""Short requests go first: work on a large body pauses while a short request is in progress.

The pauses are bounded, so a large body always gets on. Without short requests it takes no pause.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

# a body of more bytes is large
LARGE = 1 << 18
# longest pause, in seconds: after every LARGE bytes that arrive, 0.8 s for 16 MB in all
_PAUSE = 0.012
# longest pause of the thread that parses, in seconds, after every 65,536 characters
_PAUSE_OF_THREAD = 0.003
# how often a pause looks whether it may end, in seconds
_LOOK = 0.001

_short = 0
_is_large: ContextVar[bool] = ContextVar("is_large", default=False)


@contextmanager
def request(size: int) -> Iterator[Callable[[], None]]:
    """Count a request as in progress if its body of ``size`` bytes is short.

    Yields:
        Call it when the answer is ready: the request no longer counts while its client reads.
    """
    global _short
    large = size > LARGE
    token = _is_large.set(large)
    counts = not large
    _short += counts

    def answered() -> None:
        nonlocal counts
        global _short
        _short -= counts
        counts = False

    try:
        yield answered
    finally:
        answered()
        _is_large.reset(token)


async def pause() -> None:
    """Let short requests go first, if the calling task works on a large one."""
    until = time.monotonic() + _PAUSE
    while (  # noqa: ASYNC110 -- threads read the count, too
        _short and _is_large.get() and time.monotonic() < until
    ):
        await asyncio.sleep(_LOOK)


def pause_thread() -> None:
    """Like ``pause``, in a thread that ``executors`` runs for the task."""
    until = time.monotonic() + _PAUSE_OF_THREAD
    while _short and _is_large.get() and time.monotonic() < until:
        time.sleep(_LOOK)


def lower() -> None:
    """Let the service go before this process, for the processor."""
    os.nice(10)


def give_way() -> None:
    """Let the service go before this process: for the processor, and if the system lacks memory."""
    lower()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
