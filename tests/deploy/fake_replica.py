"""A replica that fails on command, for faults that the service itself must not have."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from tests.conftest import free_port

# this header of a request names the replica's action; without it the answer is 200
ORDER = "x-order"
# longer than two checks at an interval of one second
STALL_SECONDS = 4.5


@dataclass
class Orders:
    """The actions of all replicas, by order.

    Attributes:
        seen: number of completely received requests, by order.
        most: how often an order is executed; after that the answer is 200.
    """

    seen: Counter[str] = field(default_factory=Counter)
    most: dict[str, int] = field(default_factory=dict)


class FakeReplica:
    """Answers 200, except to orders.

    ``die``: close the port and all connections, without an answer. ``drop``: close the connection.
    ``stall``: do nothing for a while. ``503``, ``413``: answer with this status. ``503 of NAME``:
    answer 503 if this is the replica's name.
    """

    def __init__(self, name: str, orders: Orders) -> None:
        self.name = name
        self.port = free_port()
        self.alive = True
        self._orders = orders
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.StreamWriter] = set()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 20)
        )
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def close(self) -> None:
        """End the replica, dead or alive."""

        async def ended() -> None:
            self._die()
            # the tasks of connections that were just accepted begin
            await asyncio.sleep(0)
            self._die()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(ended(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _die(self) -> None:
        self.alive = False
        self._server.close()
        for writer in self._connections:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while self._answer(await _request(reader), writer):
                    await writer.drain()
        finally:
            self._connections.discard(writer)
            writer.close()

    def _answer(self, headers: dict[str, str], writer: asyncio.StreamWriter) -> bool:
        order = headers.get(ORDER, "")
        self._orders.seen[order] += 1
        if self._orders.seen[order] > self._orders.most.get(order, 1 << 30):
            order = ""
        status = "200"
        match order.split():
            case ["die"]:
                self._die()
                return False
            case ["drop"]:
                writer.transport.abort()
                return False
            case ["stall"]:
                time.sleep(STALL_SECONDS)
            case [status] | [status, "of", self.name]:
                pass
        body = f"{status} by {self.name}".encode()
        writer.write(b"HTTP/1.1 %s it\r\nContent-Length: %d\r\n\r\n" % (status.encode(), len(body)))
        writer.write(body)
        return True


async def _request(reader: asyncio.StreamReader) -> dict[str, str]:
    """The head of a request, once its body has arrived."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    if headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            await reader.readexactly(size + 2)
        await reader.readuntil(b"\r\n")
    else:
        await reader.readexactly(int(headers.get("content-length", "0")))
    return headers


@contextmanager
def fakes(orders: Orders, count: int) -> Iterator[list[FakeReplica]]:
    """This number of replicas, named ``1``, ``2`` and so on."""
    with ExitStack() as stack:
        made = [FakeReplica(str(number), orders) for number in range(1, count + 1)]
        for one in made:
            stack.callback(one.close)
        yield made
