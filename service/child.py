"""Processes of their own, for work that takes much memory: they talk to the service in JSON lines.

A child goes before the service when processor or memory run short, and it ends when its stdin does,
so it never outlives the service.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, cast

import orjson

from service.precedence import give_way

_LINE_BYTES = 1 << 20


class Child:
    """A child process, as the service sees it."""

    def __init__(self, process: Process) -> None:
        self._in = cast("asyncio.StreamWriter", process.stdin)
        self._out = cast("asyncio.StreamReader", process.stdout)

    async def send(self, wish: object) -> None:
        """Write a line to it; nothing happens if it has ended."""
        with suppress(ConnectionError):
            self._in.write(orjson.dumps(wish) + b"\n")
            await self._in.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Its next line; None if it has ended."""
        line = await self._out.readline()
        said: dict[str, Any] | None = orjson.loads(line) if line.endswith(b"\n") else None
        return said

    async def receive_bytes(self, size: int) -> bytes:
        """What it writes between two lines.

        Raises:
            asyncio.IncompleteReadError: it has ended.
        """
        return await self._out.readexactly(size)


async def started(module: str, environment: Mapping[str, str] | None = None) -> Process:
    """Start ``python -m module``, with further variables of its environment."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        limit=_LINE_BYTES,
        env={**os.environ, **(environment or {})},
    )


@asynccontextmanager
async def ending(process: Process) -> AsyncIterator[Child]:
    """The child that ``started`` gave, which ends with the block."""
    try:
        yield Child(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def say(what: object, *blobs: bytes) -> None:
    """Write a line from the child to the service, and bytes after it."""
    sys.stdout.buffer.write(orjson.dumps(what) + b"\n")
    for blob in blobs:
        sys.stdout.buffer.write(blob)
    sys.stdout.buffer.flush()


def serve(work: Callable[[dict[str, Any]], None], failed: Callable[[Exception], object]) -> None:
    """In the child: do what each line of stdin says, and end with stdin or the first error.

    Args:
        work: does what a line says.
        failed: what to say of an error, as ``{"error": ...}``.
    """
    give_way()
    try:
        for line in _lines():
            work(orjson.loads(line))
    except Exception as error:  # noqa: BLE001 the service handles it
        say({"error": failed(error)})
    # without waiting for the thread
    os._exit(0)


def _lines() -> Iterator[bytes]:
    """Lines of stdin as they come; the process ends with stdin, whatever it does then."""
    waiting = SimpleQueue[bytes]()

    def read() -> None:
        for line in sys.stdin.buffer:
            waiting.put(line)
        os._exit(1)

    Thread(target=read, daemon=True).start()
    while True:
        yield waiting.get()
