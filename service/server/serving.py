"""uvicorn, with a drain between SIGTERM and closing its sockets; alone, or as a worker."""

import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import structlog
import uvicorn

from docsplit.bundles.manifest import BundleError
from service import logs, sockets
from service.errors import ServiceError
from service.keys.file import KeysError
from service.server.app import create_app
from service.server.edge.connections import IDLE_SECONDS, Limits, limited
from service.server.encoders import open_bundles
from service.server.lifecycle import Phase, Service
from service.server.workers import ALIVE, BAD_BUNDLE, NO_ENGINE, Scrape
from service.settings import Settings

log = structlog.get_logger("docsplit")

# connections that may wait for the service to accept them
BACKLOG = 2048
# exit status of a worker that a restart fixes once the file of keys is repaired
BAD_KEYS = 4
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class DrainingServer(uvicorn.Server):
    """On SIGTERM /readyz turns 503; the socket stays open until balancers have noticed.

    A second signal, or SIGINT, closes at once. Requests in progress still get their answers.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self._close: tuple[float, int] | None = None
        self._interrupted = False

    @property
    def status(self) -> int:
        """The exit status: 1 if the engine failed or work was cut off, 130 after SIGINT, else 0."""
        if self.service.phase is Phase.FAILED or self.service.cut_off:
            return 1
        return 128 + signal.SIGINT if self._interrupted else 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals; unlike uvicorn's own, do not end the process by the same signal."""
        former = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Signal handler, see the class."""
        draining = self.service.phase is Phase.DRAINING
        wait = self.service.settings.drain_seconds
        self.service.drain()
        self._interrupted = self._interrupted or sig == signal.SIGINT
        if sig != signal.SIGTERM or draining or wait == 0:
            super().handle_exit(sig, frame)
            return
        log.info("draining", seconds=wait)
        self._close = (time.monotonic() + wait, sig)

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second; a failed or hanging engine ends the process."""
        if self._close is not None and time.monotonic() >= self._close[0]:
            super().handle_exit(self._close[1], None)
            self._close = None
        self.service.check_engine()
        failed = self.service.phase is Phase.FAILED
        if failed:
            # requests that wait for the engine would wait for ever
            self.config.timeout_graceful_shutdown = 1
        return await super().on_tick(counter) or failed


def configure(service: Service) -> uvicorn.Config:
    """uvicorn's settings."""
    settings = service.settings
    metrics = service.metrics
    limits = Limits(
        head_bytes=settings.max_header_bytes,
        head_seconds=settings.header_timeout,
        read_seconds=settings.body_timeout,
        connections=sockets.room(settings.max_connections),
        closed=metrics.connections_closed,
    )
    metrics.connections.set_function(lambda: len(limits.open))
    return uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        http=limited(limits),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # uvicorn would trust any header from the loopback address; see trusted_proxies
        proxy_headers=False,
        # ``limited`` closes idle connections before
        timeout_keep_alive=int(IDLE_SECONDS) + 1,
        timeout_graceful_shutdown=int(settings.request_timeout) + 1,
        backlog=BACKLOG,
    )


def run(service: Service) -> int:
    """Serve until a signal; return the exit status, see ``DrainingServer``."""
    listener = sockets.everywhere(service.settings.host, service.settings.port)
    server = DrainingServer(configure(service), service)
    server.run(None if listener is None else [listener])
    return server.status


class WorkerServer(DrainingServer):
    """A server that receives signals from the supervisor.

    Service managers and terminals signal every process. A worker that also reacted to those would
    count each signal twice.
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
        revisions: the revisions that the bundles must have.
    """
    for handled in _SIGNALS:
        signal.signal(handled, signal.SIG_IGN)
    # the process that this one was forked from blocks it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    logs.configure(settings.log_level, settings.log_format)
    structlog.contextvars.bind_contextvars(worker=number)
    try:
        # the supervisor has verified the bundle's files
        service = Service(settings, open_bundles(settings, revisions=revisions))
        server = WorkerServer(configure(service), service, supervisor)
    except (BundleError, ServiceError, ValueError) as error:
        log.error("cannot_start", reason=str(error))
        # the other workers serve with the former keys until the file is repaired
        sys.exit(BAD_KEYS if isinstance(error, KeysError) else BAD_BUNDLE)
    service.workers = Scrape(folder, number, service.metrics.registry)
    server.run([listener])
    failed = service.phase is Phase.FAILED
    sys.exit(NO_ENGINE if failed and service.running is None else server.status)
