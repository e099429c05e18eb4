"""One of several processes that serve behind one socket; the supervisor starts it."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import structlog
import uvicorn

from bundles import format as bundle
from bundles.manifest import BundleError
from service import logs
from service.embedding.engines.interface import EngineError
from service.server import serving as server
from service.server.lifecycle import Service
from service.server.scrape import Scrape
from service.settings import Settings

log = structlog.get_logger("docsplit")

# what the supervisor sends beside signals, and what a worker answers
ALIVE = 0
# exit statuses of a worker that no restart mends, and of the service then
NO_ENGINE = 3
BAD_BUNDLE = 2
UNUSABLE = {NO_ENGINE: 1, BAD_BUNDLE: 2}


class WorkerServer(server.DrainingServer):
    """Takes signals from the supervisor.

    Service managers and terminals send theirs to every process: a worker that took them as well
    would count each twice.

    Args:
        supervisor: a pipe.
    """

    def __init__(self, config: uvicorn.Config, service: Service, supervisor: Connection) -> None:
        super().__init__(config, service)
        self._supervisor = supervisor

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them ignored."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's pulse, ten times a second; the worker ends when the supervisor has ended."""
        try:
            while self._supervisor.poll():
                order = self._supervisor.recv()
                if order == ALIVE:
                    self._supervisor.send(ALIVE)
                else:
                    self.handle_exit(order, None)
        except (EOFError, OSError):
            self.should_exit = True
        return await super().on_tick(counter)


def work(
    settings: Settings,
    revision: str,
    listener: socket.socket,
    folder: Path,
    number: int,
    supervisor: Connection,
) -> None:
    """Serve until the supervisor says otherwise; ends the process.

    Args:
        settings: of this worker.
        revision: that the bundle must have.
        listener: a bound socket.
        folder: of the workers' own sockets.
        number: tells the workers apart.
        supervisor: a pipe.
    """
    for handled in (signal.SIGINT, signal.SIGTERM):
        signal.signal(handled, signal.SIG_IGN)
    logs.configure(settings.log_level, settings.log_format)
    structlog.contextvars.bind_contextvars(worker=number)
    try:
        # the supervisor has verified its files
        found = bundle.load(settings.bundle, verify=False)
        if found.manifest.revision != revision:
            raise BundleError(f"{settings.bundle}: another bundle since the service started")
        service = Service(settings, found)
    except (BundleError, EngineError, ValueError) as error:
        log.error("cannot_start", reason=str(error))
        sys.exit(BAD_BUNDLE)
    service.workers = Scrape(folder, number, service.metrics.registry)
    status = server.serve(WorkerServer(server.configure(service), service, supervisor), [listener])
    sys.exit(NO_ENGINE if status and service.running is None else status)
