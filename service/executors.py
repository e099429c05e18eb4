"""The threads of a process: every kind of work has a few of its own.

All kinds would share asyncio's default executor, and a few long calls would hold up all
the rest. Here trainings wait only for trainings, and the file of keys is always read.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, ParamSpec, TypeVar, cast
from weakref import WeakSet

P = ParamSpec("P")
T = TypeVar("T")


class Pool(ThreadPoolExecutor):
    """A few threads of one kind, and how many of them are busy.

    Args:
        name: of the kind, in the threads' names and the metrics.
        threads: at most; they start as they are needed.
    """

    _all: ClassVar[WeakSet[Pool]] = WeakSet()

    def __init__(self, name: str, threads: int) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self.name = name
        self.busy = 0
        self._lock = threading.Lock()
        Pool._all.add(self)

    @classmethod
    def busy_threads(cls, name: str) -> int:
        """Busy threads of all pools of that name."""
        return sum(pool.busy for pool in tuple(cls._all) if pool.name == name)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As ``ThreadPoolExecutor``'s; the thread counts as busy until the call has ended."""
        return super().submit(self._counted, fn, *args, **kwargs)

    async def run(
        self,
        call: Callable[P, T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The call's result; the call is not begun if the awaiting task is cancelled before it.

        What the call needs is let go at once then, however long the threads stay busy.
        """
        work = _Call(contextvars.copy_context(), lambda: call(*args, **kwargs))
        future = self.submit(work)
        try:
            return cast("T", await asyncio.wrap_future(future))
        finally:
            # false where it has begun
            if future.cancel():
                work.forget()

    async def run_stoppable(self, call: Callable[[threading.Event], T]) -> T:
        """As ``run``, with an event that is set if the awaiting task is cancelled.

        Args:
            call: looks at the event often, and ends soon after it was set.
        """
        stop = threading.Event()
        try:
            return await self.run(call, stop)
        finally:
            stop.set()

    def _counted(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        with self._lock:
            self.busy += 1
        try:
            return fn(*args, **kwargs)
        finally:
            with self._lock:
                self.busy -= 1


class _Call:
    """A call that can be forgotten while it stands in an executor's queue."""

    def __init__(self, context: contextvars.Context, call: Callable[[], object]) -> None:
        self._work: tuple[contextvars.Context, Callable[[], object]] | None = (context, call)

    def __call__(self) -> object:
        work, self._work = self._work, None
        return None if work is None else work[0].run(work[1])

    def forget(self) -> None:
        self._work = None


# the parsing and validation of large bodies
BODIES = Pool("bodies", 1)
# trainings that a request waits for
TRAINING = Pool("training", 1)
# those that nobody waits for: they may take hours
BACKGROUND = Pool("background", 1)
# what classifiers say of many documents
SCORING = Pool("scoring", 1)
# what the index and the heads' store have computed around their reads and writes
STORE = Pool("store", 2)
# the keys' file, so that nothing holds up a revocation
KEYS = Pool("keys", 1)
# the engine's start, and its end
START = Pool("start", 1)
NAMES = (
    "bodies",
    "training",
    "background",
    "scoring",
    "store",
    "disk",
    "keys",
    "start",
    "tokenise",
    "libraries",
)


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Give what libraries run in a loop's default executor two threads, which are counted.

    This service runs nothing there itself; asyncio does, to resolve host names.
    """
    loop.set_default_executor(Pool("libraries", 2))
