"""A front: HTTP, tokenising, pooling and indexes; its vectors come from the engine's process.

The engine's process starts it as ``python -m service.workers.front CONNECTION LANE``, both
inherited descriptors of Unix sockets; clients' connections come over the lane, accepted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
import uvicorn

from bundles import format as bundle
from bundles.manifest import BundleError
from service import logs
from service.server import serving as server
from service.server.lifecycle import Phase, Service
from service.settings import Settings
from service.workers import metrics, wire
from service.workers.client import EngineClient, RemoteVectors, Status

log = structlog.get_logger("docsplit")

# after the engine's process has gone: time to send answers that are there
_LEFT_SECONDS = 1
_LEFT_ANYHOW_SECONDS = 10.0


@dataclass
class FrontService(Service):
    """A service whose engine and cache are in another process.

    Attributes:
        worker: number of this front; front 0 looks after the indexes for all.
        connection: to the engine's process.
        closing: whether no connections come any more.
        closed: connections of clients that have ended.
    """

    worker: int = field(kw_only=True)
    connection: socket.socket = field(kw_only=True)
    closing: bool = False
    closed: Callable[[], int] = lambda: 0
    status: Status = field(init=False)
    client: EngineClient = field(init=False)
    told_at: float = field(default_factory=time.monotonic)
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.status = Status(Phase.STARTING, False, False, 0, None, None)
        self.client = EngineClient(
            self._told, lambda: metrics.snapshot(self.metrics.registry), lambda: self.closed()
        )

    @property
    def degraded(self) -> bool:
        """As the engine's process has it."""
        return self.status.degraded

    @property
    def calibrated(self) -> dict[str, Any] | None:
        """As the engine's process has it."""
        return self.status.calibration

    async def start(self) -> None:
        """Connect; return when the engine is ready, or never will be."""
        await self.client.open(self.connection)
        await self.settled.wait()

    def follow(self) -> None:
        """Look after the indexes, in one front of the service."""
        if self.worker == 0:
            super().follow()

    def check_engine(self) -> None:
        """Take an engine's process for dead that is there and has been silent for long."""
        patience = max(self.settings.engine_timeout, wire.PATIENCE_SECONDS)
        if time.monotonic() - self.told_at > patience and self.phase is not Phase.FAILED:
            self.phase = Phase.FAILED
            log.error("engine_silent", seconds=patience)

    async def scrape(self) -> bytes:
        """The metrics of all processes."""
        async with asyncio.timeout(self.settings.request_timeout):
            return await self.client.scrape()

    async def stop(self) -> None:
        """As ``Service.stop``, and hang up."""
        await super().stop()
        await self.client.close()

    def _told(self, status: Status | None) -> None:
        if status is None:
            if not self.closing:
                log.error("engine_gone")
            self.phase = Phase.FAILED
            # a training, or whatever else does not end at once, must not stay behind
            timer = threading.Timer(_LEFT_ANYHOW_SECONDS, os._exit, (1,))
            timer.daemon = True
            timer.start()
        else:
            self.status, self.phase, self.closing = status, status.phase, status.closing
            self.told_at = time.monotonic()
            if self.running is None and status.engine is not None and not self.closing:
                vectors, fresh = (
                    RemoteVectors(self.client, lambda: self.status, cached=cached)
                    for cached in (True, False)
                )
                # a front has one core
                self.running = self._run(status.engine, None, vectors, fresh, workers=1)
        if self.running is not None or self.closing or self.phase is Phase.FAILED:
            self.settled.set()


class FrontServer(uvicorn.Server):
    """Serves the connections that it is given until the engine's process says so, or is gone.

    Signals are that process's business: Ctrl-C and service managers send theirs to every process.

    Args:
        lane: where accepted connections come from.
    """

    def __init__(self, config: uvicorn.Config, service: FrontService, lane: socket.socket) -> None:
        super().__init__(config)
        self._service = service
        self._lane = lane
        self._taken = 0
        self._greeting: set[asyncio.Task[object]] = set()
        self._leaving = False
        service.closed = lambda: (
            self._taken - len(self._greeting) - len(self.server_state.connections)
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them ignored."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, without a listening socket."""
        await super().startup(sockets=[])
        self._lane.setblocking(False)
        asyncio.get_running_loop().add_reader(self._lane, self._take)

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's pulse, ten times a second."""
        self._service.check_engine()
        # a tick later: what came over the lane before must have been read
        done = self._leaving
        self._leaving = self._service.closing or self._service.phase is Phase.FAILED
        if self._service.phase is Phase.FAILED:
            self.config.timeout_graceful_shutdown = _LEFT_SECONDS
        return await super().on_tick(counter) or done

    def _take(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            sent, descriptors, _, _ = socket.recv_fds(self._lane, 1, 1)
        except (BlockingIOError, InterruptedError):
            return
        if not sent:
            loop.remove_reader(self._lane)
            return
        self._taken += 1
        if not descriptors:
            # it is closed: the kernel found no free descriptor
            log.error("connection_dropped")
            return
        connection = socket.socket(fileno=descriptors[0])
        connection.setblocking(False)
        connection.set_inheritable(False)
        greeting = loop.create_task(self._greet(connection))
        self._greeting.add(greeting)
        greeting.add_done_callback(self._greeting.discard)

    async def _greet(self, connection: socket.socket) -> None:
        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )
            return made

        # a client that has left already is none
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(protocol, connection)


def main(arguments: list[str]) -> int:
    """Serve until the engine's process ends this one.

    Returns:
        Exit status: 0 when told to end, 1 when the engine's process is gone or another bundle lies
        where the service's did.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection, lane = (socket.socket(fileno=int(descriptor)) for descriptor in arguments)
    for inherited in (connection, lane):
        inherited.set_inheritable(False)
    start = wire.receive_now(connection)
    settings = Settings(**start["settings"])
    logs.configure(settings.log_level, settings.log_format)
    structlog.contextvars.bind_contextvars(worker=start["worker"])
    try:
        # the engine's process has verified its files
        found = bundle.load(settings.bundle, verify=False)
    except BundleError as error:
        log.error("bundle_unusable", reason=str(error))
        return 1
    if found.manifest.revision != start["revision"]:
        log.error("bundle_replaced", reason="restart the service to serve it")
        return 1
    service = FrontService(settings, found, worker=start["worker"], connection=connection)
    FrontServer(server.configure(service), service, lane).run()
    return 1 if service.phase is Phase.FAILED else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
