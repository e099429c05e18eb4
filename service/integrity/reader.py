"""Runs reads of damaged files in a process of its own, because LanceDB can end that process."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from service import executors

P = ParamSpec("P")
T = TypeVar("T")

# one read takes milliseconds; one that takes so long never ends
SECONDS = 300.0
# forked from a process that has imported LanceDB already: a start takes some hundredths of a second
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["service.integrity.reading"])


class EndedError(Exception):
    """The read ended its process, or took too long."""


class Reader:
    """Calls functions in another process, and starts that process again after it ended.

    Use it as a context manager.

    Args:
        seconds: that a call may take; None means any time.
    """

    def __init__(self, seconds: float | None = SECONDS) -> None:
        self._seconds = seconds
        self._started: tuple[Connection, multiprocessing.context.ForkServerProcess] | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    async def run(
        self, call: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The result of a coroutine function of a module, in the other process.

        Raises:
            EndedError: the process ended, or was ended after ``seconds``.
            Exception: the function raised it.
        """
        return await executors.STORE.run(self._run, (call, args, kwargs))

    def _run(self, wish: tuple[Any, ...]) -> Any:
        pipe = self._pipe()
        try:
            pipe.send(wish)
            if not pipe.poll(self._seconds):
                raise EndedError(f"reading took more than {self._seconds:g} s")
            value, error = pipe.recv()
        except (EOFError, OSError) as gone:
            self._end()
            raise EndedError("reading it ended the process") from gone
        except EndedError:
            self._end()
            raise
        if error is not None:
            raise error
        return value

    def _pipe(self) -> Connection:
        if self._started is None:
            pipe, its_pipe = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=_serve, args=(its_pipe,), daemon=True)
            process.start()
            its_pipe.close()
            self._started = pipe, process
        return self._started[0]

    def _end(self) -> None:
        if self._started is not None:
            pipe, process = self._started
            self._started = None
            pipe.close()
            process.kill()
            process.join()
            process.close()


def _serve(pipe: Connection) -> None:
    """Answer calls until the pipe closes."""
    # LanceDB says there why it ends the process
    silent = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(silent, standard)
    with suppress(OSError):
        # a wrong length can ask for all memory: the system then ends this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    while True:
        try:
            call, args, kwargs = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((asyncio.run(call(*args, **kwargs)), None))
        except Exception as error:  # noqa: BLE001 LanceDB panics on some damage
            # not every error of a library survives the way
            pipe.send((None, RuntimeError(str(error))))
