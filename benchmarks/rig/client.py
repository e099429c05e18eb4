"""Load from a separate process: a fixed number of clients, or requests at given times.

The client encodes bodies before the clock starts. It reads answers but does not decode them. It
therefore uses little processor time, and the same for each server.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import aiohttp

GONE = 0


@dataclass(frozen=True)
class Answer:
    """The outcome of one request.

    Attributes:
        number: number of the request, from 0.
        status: HTTP status; ``GONE`` if there was no answer in time or the connection broke.
        began: planned or actual time of sending, in seconds from the start of the load.
        seconds: time from then to the last byte.
    """

    number: int
    status: int
    began: float
    seconds: float


@dataclass(frozen=True)
class Load:
    """Requests to send.

    Attributes:
        url: address of the requests.
        bodies: JSON bodies, one for each request.
        clients: number of clients. Each sends one request after the other. Unused with ``times``.
        times: when to send each request, in seconds from the start, regardless of earlier answers.
        patience: seconds after which a client hangs up.
        headers: headers of each request.
    """

    url: str
    bodies: Sequence[bytes]
    clients: int = 1
    times: Sequence[float] | None = None
    patience: float = 600
    headers: Mapping[str, str] = field(default_factory=dict)


class Client:
    """The process that sends requests."""

    def __enter__(self) -> Self:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=spawn)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def send(self, load: Load) -> list[Answer]:
        """Send a load; returns when every request is answered or given up."""
        return self.start(load).result()

    def start(self, load: Load) -> Future[list[Answer]]:
        """Send a load without waiting for its end."""
        return self._pool.submit(_send, load)


def _send(load: Load) -> list[Answer]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return asyncio.run(_sent(load))


async def _sent(load: Load) -> list[Answer]:
    headers = {"content-type": "application/json", **load.headers}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=load.patience),
        headers=headers,
    ) as session:
        start = time.monotonic()

        async def post(number: int, began: float) -> Answer:
            try:
                async with session.post(load.url, data=load.bodies[number]) as answer:
                    await answer.read()
                    status = answer.status
            except (aiohttp.ClientError, TimeoutError):
                status = GONE
            return Answer(number, status, began, time.monotonic() - start - began)

        if load.times is not None:

            async def at(number: int, moment: float) -> Answer:
                await asyncio.sleep(start + moment - time.monotonic())
                return await post(number, moment)

            return await asyncio.gather(*(at(n, t) for n, t in enumerate(load.times)))

        queue = iter(range(len(load.bodies)))

        async def in_turn() -> list[Answer]:
            return [await post(number, time.monotonic() - start) for number in queue]

        parts = await asyncio.gather(*(in_turn() for _ in range(load.clients)))
        return [answer for part in parts for answer in part]
