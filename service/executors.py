"""The threads of a process. Every kind of work has its own few threads.

In asyncio's default executor, a few long calls would block all other calls. Here trainings wait
only for trainings, and the file of keys is always read in time.
"""

import asyncio
import contextvars
import gc
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, ParamSpec, TypeVar, cast
from weakref import WeakSet

P = ParamSpec("P")
T = TypeVar("T")

# Seconds that a thread waits before it asks for the interpreter. A short request asks about ten
# times on its way through the threads; beside a busy thread, Python's own 5 ms add up to 50 ms.
SWITCH_SECONDS = 0.001
_PAUSE_SECONDS = 1.0


class Pool(ThreadPoolExecutor):
    """A few threads for one kind of work. It counts the busy ones.

    Args:
        name: kind of work; appears in the threads' names and the metrics.
        threads: at most; they start when needed.
    """

    _all: ClassVar[WeakSet["Pool"]] = WeakSet()

    def __init__(self, name: str, threads: int) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self.name = name
        self.busy = 0
        self._lock = threading.Lock()
        Pool._all.add(self)

    @classmethod
    def busy_threads(cls, name: str) -> int:
        """Busy threads of all pools with that name."""
        return sum(pool.busy for pool in tuple(cls._all) if pool.name == name)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Like ``ThreadPoolExecutor.submit``; the thread counts as busy until the call ends."""
        return super().submit(self._counted, fn, *args, **kwargs)

    async def run(
        self,
        call: Callable[P, T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The call's result. If the awaiting task is cancelled first, the call never begins.

        A cancelled call releases its arguments at once, even while all threads stay busy.
        """
        work = _Call(contextvars.copy_context(), lambda: call(*args, **kwargs))
        future = self.submit(work)
        try:
            return cast("T", await asyncio.wrap_future(future))
        finally:
            # false if the call has begun
            if future.cancel():
                work.forget()

    async def run_stoppable(self, call: Callable[[threading.Event], T]) -> T:
        """Like ``run``, with an event that is set when the awaiting task is cancelled.

        Args:
            call: checks the event often, and ends soon after it is set.
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
    """A call that can be cancelled while it waits in an executor's queue."""

    def __init__(self, context: contextvars.Context, call: Callable[[], object]) -> None:
        self._work: tuple[contextvars.Context, Callable[[], object]] | None = (context, call)

    def __call__(self) -> object:
        work, self._work = self._work, None
        return None if work is None else work[0].run(work[1])

    def forget(self) -> None:
        self._work = None


# parsing and validation of large bodies
BODIES = Pool("bodies", 1)
# trainings that a request waits for
TRAINING = Pool("training", 1)
# trainings in the background, which may take hours
BACKGROUND = Pool("background", 1)
# predictions of classifiers for many documents
SCORING = Pool("scoring", 1)
# computing around reads and writes of the index and the store of heads
STORE = Pool("store", 2)
# comparing the words of stored texts: passages, near-duplicates, links in texts
WORDS = Pool("words", 1)
# the file of keys, so that nothing delays a revocation
KEYS = Pool("keys", 1)
# writing uploaded files to disk
UPLOADS = Pool("uploads", 1)
# reading uploaded files in confined processes, up to minutes for one file
READING = Pool("reading", 1)
# reading a file while its request waits, up to some seconds for one
TEXTS = Pool("texts", 1)
# starting and stopping the engine
START = Pool("start", 1)
NAMES = (
    "bodies",
    "training",
    "background",
    "scoring",
    "store",
    "disk",
    "words",
    "keys",
    "uploads",
    "reading",
    "texts",
    "start",
    "tokenise",
    "libraries",
)


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Give libraries that use a loop's default executor two threads, which are counted.

    The service itself runs nothing there. asyncio does, to resolve host names.
    """
    loop.set_default_executor(Pool("libraries", 2))


async def tend() -> None:
    """Switch threads often, and exclude the objects of modules from garbage collection for good.

    A full collection visits every object and blocks all threads: for 0.2 s once LanceDB and
    scikit-learn are imported, which happens late. A body of 130,000 lists starts two collections.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    modules = 0
    while True:
        if len(sys.modules) != modules:
            modules = len(sys.modules)
            gc.freeze()
        await asyncio.sleep(_PAUSE_SECONDS)
