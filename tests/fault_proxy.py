"""A TCP proxy that delays, cuts and resets connections to a server, for tests."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Literal

# pass: forward everything. refuse: end each connection at once, open ones too. stall: accept
# connections and forward nothing.
Mode = Literal["pass", "refuse", "stall"]

_LOOK = re.compile(rb"GET [^ ]*list-type=2[^ ]*%2Findexes%2F[^ ]*_versions")


class FaultProxy:
    """Forwards connections to a port of this machine until a test sets another mode.

    Args:
        target: port of the server.

    Attributes:
        port: of the proxy.
        delay: seconds by which each answer in HTTP is late.
        lose: the next request that this matches reaches the server, and its answer is lost.
        lost: how many answers were lost.
        requests: how many requests in HTTP came from clients.
        looks: how many of them list the versions of an index.
        received: bytes of the server's answers.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._mode: Mode = "pass"
        self.delay = 0.0
        self.lose: re.Pattern[bytes] | None = None
        self.lost = 0
        self.requests = 0
        self.looks = 0
        self.received = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def mode(self) -> Mode:
        """What happens to connections now."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        if mode == "refuse":
            self._call(self._reset())

    def close(self) -> None:
        """End all connections and the thread."""
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _end(self) -> None:
        self._server.close()
        await self._reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _reset(self) -> None:
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            if self._mode == "refuse":
                return
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            self._open.add(back)
            marks: list[bytes] = []
            asked = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask(reader, back, marks, asked))
                group.create_task(self._answer(there, writer, marks, asked))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, *([back] if "back" in locals() else [])):
                self._open.discard(one)
                one.transport.abort()
            self._tasks.discard(task)

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        marks: list[bytes],
        asked: asyncio.Event,
    ) -> None:
        while part := await self._part(reader):
            if requests := part.count(b" HTTP/1.1\r\n"):
                self.requests += requests
                self.looks += len(_LOOK.findall(part))
                asked.set()
            if self.lose is not None and self.lose.search(part):
                self.lose = None
                marks.append(part)
            writer.write(part)
            await writer.drain()
        raise ConnectionResetError

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        marks: list[bytes],
        asked: asyncio.Event,
    ) -> None:
        while part := await self._part(reader):
            if marks:
                self.lost += 1
                break
            self.received += len(part)
            if asked.is_set():
                asked.clear()
                await asyncio.sleep(self.delay)
            writer.write(part)
            await writer.drain()
        # also ends the other direction
        raise ConnectionResetError

    async def _part(self, reader: asyncio.StreamReader) -> bytes:
        part = await reader.read(1 << 16)
        while self._mode == "stall":  # noqa: ASYNC110 the test's thread changes it
            await asyncio.sleep(0.02)
        return part
