"""One of several processes behind one socket; the supervisor starts it."""

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import structlog
import uvicorn

from docsplit.bundles.manifest import BundleError
from service import logs
from service.errors import ServiceError
from service.keys.file import KeysError
from service.server import serving as server
from service.server.lifecycle import Service
from service.server.opening import open_bundles
from service.server.scrape import Scrape
from service.server.supervisor import ALIVE, BAD_BUNDLE, NO_ENGINE
from service.settings import Settings

log = structlog.get_logger("docsplit")

# exit status of a worker that a restart fixes once the file of keys is repaired
BAD_KEYS = 4


class WorkerServer(server.DrainingServer):
    """A server that receives signals from the supervisor.

    Service managers and terminals signal every process. A worker that also reacted to those would
    count each signal twice.

    Args:
        supervisor: a pipe.
    """

    def __init__(self, config: uvicorn.Config, service: Service, supervisor: Connection) -> None:
        super().__init__(config, service)
        self._supervisor = supervisor

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Keep the signals ignored."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second; the worker ends after its supervisor."""
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
    revisions: tuple[str, ...],
    listener: socket.socket,
    folder: Path,
    number: int,
    supervisor: Connection,
) -> None:
    """Serve until the supervisor stops this worker; then end the process.

    Args:
        settings: for this worker.
        revisions: the revisions that the bundles must have.
        listener: a bound socket.
        folder: for the workers' own sockets.
        number: identifies the worker.
        supervisor: a pipe.
    """
    for handled in (signal.SIGINT, signal.SIGTERM):
        signal.signal(handled, signal.SIG_IGN)
    # the process that this one was forked from blocks it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    logs.configure(settings.log_level, settings.log_format)
    structlog.contextvars.bind_contextvars(worker=number)
    try:
        # the supervisor has verified the bundle's files
        service = Service(settings, open_bundles(settings, revisions=revisions))
    except (BundleError, ServiceError, ValueError) as error:
        log.error("cannot_start", reason=str(error))
        # the other workers serve with the former keys until the file is repaired
        sys.exit(BAD_KEYS if isinstance(error, KeysError) else BAD_BUNDLE)
    service.workers = Scrape(folder, number, service.metrics.registry)
    status = server.serve(WorkerServer(server.configure(service), service, supervisor), [listener])
    sys.exit(NO_ENGINE if status and service.running is None else status)
