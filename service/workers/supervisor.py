"""The engine's process: it computes for the fronts, starts them, and ends with them.

Whatever ends this process ends the service: a front that reads the end of its connection leaves at
once. So there is no state in which fronts live without an engine, and its exit status is the
service's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import structlog
from prometheus_client import generate_latest
from uvicorn.config import STARTUP_FAILURE

from service import executors
from service.logs import outline
from service.server.lifecycle import Phase, Service
from service.workers.acceptor import Acceptor, listen
from service.workers.channel import FrontChannel
from service.workers.metrics import Totals
from service.workers.wire import PATIENCE_SECONDS

log = structlog.get_logger("docsplit")

TICK_SECONDS = 0.1
# a front that lived so long is started anew at once, else after a rest that doubles
STEADY_SECONDS = 30.0
FIRST_REST_SECONDS = 0.25
LONGEST_REST_SECONDS = 8.0
# a front imports before it answers
START_SECONDS = 60.0
# fronts that never came up, in a row, after which the service gives up
STILLBORN = 3
# for answers on their way when the fronts must leave
LEAVE_SECONDS = 10.0
# a front that does not answer a scrape in time is counted as it was
SCRAPE_SECONDS = 2.0


def run(service: Service) -> int:
    """Serve with ``workers`` fronts until a signal.

    Returns:
        Exit status: 1 when the engine failed or fronts cannot start, 3 when the address cannot be
        listened on.
    """
    settings = service.settings
    try:
        listeners = listen(settings.host, settings.port)
    except OSError as error:
        log.error("cannot_listen", host=settings.host, port=settings.port, reason=str(error))
        return STARTUP_FAILURE
    for listener in listeners:
        log.info("listening", address=listener.getsockname()[:2], workers=settings.workers)
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    supervisor = Supervisor(service, listeners)
    with asyncio.Runner(loop_factory=_event_loop) as runner:
        runner.run(supervisor.serve())
    if service.phase is Phase.FAILED:
        return 1
    # end by the signal, as a single process does
    for number in reversed(supervisor.signals):
        signal.signal(number, former[number])
        signal.raise_signal(number)
    return 0


class Supervisor:
    """Keeps ``workers`` fronts running around a service.

    Args:
        service: with the engine.
        listeners: closed by ``serve``.

    Attributes:
        signals: received, in order.
    """

    def __init__(self, service: Service, listeners: list[socket.socket]) -> None:
        self._service = service
        self._channels: dict[int, FrontChannel] = {}
        self._acceptor = Acceptor(listeners, self._channels.values())
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._totals = Totals(service.metrics.registry)
        self._closing = asyncio.Event()
        self._close_at = float("inf")
        self._stillborn = 0
        self.signals: list[signal.Signals] = []

    async def serve(self) -> None:
        """Start everything; return when everything has ended."""
        loop = asyncio.get_running_loop()
        executors.install(loop)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number)
        starting = asyncio.create_task(self._service.start())
        workers = range(self._service.settings.workers)
        keepers = [asyncio.create_task(self._keep(worker)) for worker in workers]
        leave_by = float("inf")
        while not all(keeper.done() for keeper in keepers):
            self._service.check_engine()
            if starting.done() and starting.exception() is not None:
                self._service.phase = Phase.FAILED
            failed = self._service.phase is Phase.FAILED
            if not self._closing.is_set() and (failed or time.monotonic() >= self._close_at):
                leave_by = time.monotonic() + self._close()
            if failed:
                leave_by = min(leave_by, time.monotonic() + LEAVE_SECONDS)
            self._acceptor.accept(any(c.came_up for c in self._channels.values()))
            self._look(leave_by)
            await asyncio.sleep(TICK_SECONDS)
        await asyncio.gather(*keepers)
        await starting
        await self._service.stop()

    def _signalled(self, number: signal.Signals) -> None:
        """As ``DrainingServer``: SIGTERM drains first, a second signal and SIGINT close at once."""
        draining = self._service.phase is Phase.DRAINING
        wait = self._service.settings.drain_seconds
        self._service.drain()
        self.signals.append(number)
        if number != signal.SIGTERM or draining:
            wait = 0
        elif wait:
            log.info("draining", seconds=wait)
        self._close_at = min(self._close_at, time.monotonic() + wait)

    def _close(self) -> float:
        """Have the fronts stop accepting; return the seconds that they have for what is open."""
        self._closing.set()
        self._acceptor.close()
        return self._service.settings.request_timeout + LEAVE_SECONDS

    def _look(self, leave_by: float) -> None:
        """Tell every front how things are, and end those that do not answer."""
        now = time.monotonic()
        for worker, channel in self._channels.items():
            channel.tell(closing=self._closing.is_set())
            silent = now - channel.seen > max(
                self._service.settings.engine_timeout,
                PATIENCE_SECONDS if channel.came_up else START_SECONDS,
            )
            if silent or now > leave_by:
                log.error("front_silent" if silent else "front_stays", front=worker)
                self._processes[worker].kill()

    async def _keep(self, worker: int) -> None:
        rest = 0.0
        while not self._closing.is_set():
            began = time.monotonic()
            try:
                came_up, status = await self._front(worker)
            except OSError as error:
                came_up, status = False, None
                log.error("front_cannot_start", front=worker, reason=str(error))
            if self._closing.is_set():
                return
            self._stillborn = 0 if came_up else self._stillborn + 1
            if self._stillborn == STILLBORN:
                log.error("fronts_cannot_start", front=worker, status=status)
                self._service.phase = Phase.FAILED
                return
            steady = time.monotonic() - began > STEADY_SECONDS
            rest = 0.0 if steady else min(max(2 * rest, FIRST_REST_SECONDS), LONGEST_REST_SECONDS)
            log.error("front_ended", front=worker, status=status, again_in=rest)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), rest)

    async def _front(self, worker: int) -> tuple[bool, int]:
        """Start a front and answer it until it has ended; whether it came up, and its exit status.

        Raises:
            OSError: the system lets no further process start.
        """
        connection, connection_there = socket.socketpair()
        lane, lane_there = socket.socketpair()
        lane.setblocking(False)
        with connection_there, lane_there:
            process = self._launch(connection_there.fileno(), lane_there.fileno())
        channel = FrontChannel(self._service, lane, self._scrape)
        self._channels[worker], self._processes[worker] = channel, process
        log.info("front_started", front=worker, pid=process.pid)
        try:
            await channel.serve(connection, worker)
        except Exception as error:  # noqa: BLE001 it is logged
            log.error("unexpected", front=worker, outline=outline(error))
            process.kill()
        finally:
            del self._channels[worker]
            self._totals.depart(channel.snapshot)
        return channel.came_up, await executors.ENDINGS.run(_ended, process)

    def _launch(self, *descriptors: int) -> subprocess.Popen[bytes]:
        # -P and PYTHONPATH: it finds the modules that this process has found
        return subprocess.Popen(  # noqa: S603 this very program
            [sys.executable, "-P", "-m", "service.workers.front", *map(str, descriptors)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            env=environment(os.environ, self._service),
        )

    async def _scrape(self) -> bytes:
        counts = [channel.count() for channel in self._channels.values()]
        with suppress(TimeoutError):
            async with asyncio.timeout(SCRAPE_SECONDS):
                await asyncio.gather(*counts)
        snapshots = [channel.snapshot for channel in self._channels.values()]
        return generate_latest(self._totals.sum(snapshots))


def environment(inherited: os._Environ[str] | dict[str, str], service: Service) -> dict[str, str]:
    """Variables of a front: what it computes beside its event loop has one thread, LanceDB a share.

    What the operator has set stays.
    """
    share = max(1, service.processor.cores // service.settings.workers)
    limits = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "LANCE_CPU_THREADS": str(share),
    }
    path = os.pathsep.join(part for part in sys.path if part)
    return limits | dict(inherited) | {"PYTHONPATH": path}


def _event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit status of a front that has hung up."""
    try:
        return process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
