"""uvicorn, with a drain between SIGTERM and closing its sockets."""

import signal
import socket
import time
from types import FrameType

import structlog
import uvicorn

from service import descriptors
from service.server.app import create_app
from service.server.edge.connections import IDLE_SECONDS, Limits, limited
from service.server.lifecycle import Phase, Service

log = structlog.get_logger("docsplit")

# connections that may wait for the service to accept them
BACKLOG = 2048


class DrainingServer(uvicorn.Server):
    """On SIGTERM /readyz turns 503; the socket stays open until balancers have noticed.

    A second signal, or SIGINT, closes at once. Requests in progress still get their answers.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self._close: tuple[float, int] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Signal handler, see the class."""
        draining = self.service.phase is Phase.DRAINING
        wait = self.service.settings.drain_seconds
        self.service.drain()
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
        head_seconds=settings.header_timeout,
        read_seconds=settings.body_timeout,
        connections=descriptors.room(settings.max_connections),
        closed=metrics.connections_closed,
    )
    metrics.connections.set_function(lambda: len(limits.open))
    return uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        http=limited(limits),
        h11_max_incomplete_event_size=settings.max_header_bytes,
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
    """Serve until a signal; the exit status is 1 if the engine failed."""
    listener = descriptors.everywhere(service.settings.host, service.settings.port)
    sockets = None if listener is None else [listener]
    return serve(DrainingServer(configure(service), service), sockets)


def serve(server: DrainingServer, sockets: list[socket.socket] | None = None) -> int:
    """Serve on sockets, or on the address in the settings; return the exit status as ``run``."""
    server.run(sockets)
    return 1 if server.service.phase is Phase.FAILED else 0
