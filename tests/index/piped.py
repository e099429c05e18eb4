"""Programs with pipes, forked like those of ``tests.forked``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from service.index import merger as merging
from tests import forked


class Forked(forked.Child):
    """A program that reads from one pipe and writes to another.

    Args:
        target: function of a module, runs the program.
        given: its arguments.
    """

    def __init__(self, target: Callable[..., None], *given: object) -> None:
        reads, stdin = Pipe(duplex=False)
        stdout, writes = Pipe(duplex=False)
        super().__init__(_run, reads, writes, target, given)
        for end in (reads, writes):
            end.close()
        self.stdin = os.fdopen(os.dup(stdin.fileno()), "wb", buffering=0)
        self.stdout = os.fdopen(os.dup(stdout.fileno()), "rb")
        for end in (stdin, stdout):
            end.close()

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self.stdin, self.stdout):
            pipe.close()
        self.wait()


def main(module: str, *arguments: object) -> Forked:
    """Run the coroutine function ``main`` of a module."""
    return Forked(_main, module, arguments)


def command(module: str, *arguments: str) -> Forked:
    """Run the ``main`` of a module like ``python -m``."""
    return Forked(_command, module, arguments)


def _command(module: str, arguments: tuple[str, ...]) -> None:
    sys.exit(import_module(module).main(list(arguments)))


def _main(module: str, arguments: tuple[object, ...]) -> None:
    asyncio.run(import_module(module).main(*arguments))


def _run(
    reads: Connection, writes: Connection, target: Callable[..., None], given: tuple[object, ...]
) -> None:
    for end, descriptor in ((reads, 0), (writes, 1)):
        os.dup2(end.fileno(), descriptor)
        end.close()
    sys.stdin = os.fdopen(0, "r")
    target(*given)


class Merging:
    """The process that maintains a large table, with what ``process`` uses of it."""

    def __init__(self, started: Forked) -> None:
        self._started = started
        self.stdout = asyncio.StreamReader()

    async def open(self) -> Merging:
        """Connect its pipes to the event loop."""
        loop = asyncio.get_running_loop()
        self._answers, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.stdout), self._started.stdout
        )
        try:
            wishes, protocol = await loop.connect_write_pipe(
                asyncio.streams.FlowControlMixin, self._started.stdin
            )
        except asyncio.CancelledError:
            self._answers.close()
            self.kill()
            raise
        self.stdin = asyncio.StreamWriter(wishes, protocol, None, loop)
        return self

    def kill(self) -> None:
        """Send SIGKILL."""
        self._started.kill()

    async def wait(self) -> int:
        """Return its exit status when it has ended."""
        self.stdin.close()
        self._answers.close()
        return await asyncio.to_thread(self._started.wait)


async def merging_process(full_bytes: int = merging.FULL_BYTES) -> Merging:
    """In place of ``service.index.merging.started``.

    Args:
        full_bytes: the size of a file from which on it is left as it is.
    """
    return await Merging(Forked(_merging, full_bytes)).open()


def _merging(full_bytes: int) -> None:
    merging.FULL_BYTES = full_bytes
    merging.run()
