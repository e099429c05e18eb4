"""Several workers behind one socket, and their metrics.

Each worker is a whole service with its share of the cores, its own engine, queue and cache. The
supervisor binds the address, starts the workers, replaces those that die, and forwards signals. It
imports nothing of the service that they run.
"""

import asyncio
import multiprocessing
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from docsplit.engines.choice import detect
from service import temporary
from service.errors import CommandError
from service.keys import file
from service.server.encoders import open_bundles
from service.settings import Settings

log = structlog.get_logger("docsplit")

POLL_SECONDS = 0.25
# seconds before a dead worker is replaced
PAUSE_SECONDS = 1.0
# the supervisor kills a worker that is silent for longer, but never before engine_timeout
SILENCE_SECONDS = 10.0
# message to a worker besides signals, and its reply
ALIVE = 0
# exit statuses of a worker that no restart can fix, and the service's own status for each
NO_ENGINE = 3
BAD_BUNDLE = 2
UNUSABLE = {NO_ENGINE: 1, BAD_BUNDLE: 2}
# a scrape leaves out a worker that answers later
PATIENCE_SECONDS = 2.0


@dataclass
class Child:
    """A worker from the supervisor's view.

    Attributes:
        pipe: carries signals to the worker, and signs of life in both directions.
        sent: how many signals it has received.
        asked: time of the last request for a sign of life, on ``time.monotonic``'s clock.
        answered: whether the worker answered it.
        serves: whether the worker ever answered, and was not killed.
    """

    process: ForkServerProcess
    pipe: Connection
    sent: int = 0
    asked: float = field(default_factory=time.monotonic)
    answered: bool = True
    serves: bool = False


def run(settings: Settings) -> int:
    """Serve with ``settings.workers`` processes until a signal.

    Returns:
        Exit status: that of a worker that could not start, else 0.

    Raises:
        BundleError: the bundle is unusable.
        CommandError: no folder can be written.
        KeysError: the file of keys is unusable.
    """
    if settings.keys_file is not None:
        file.read(settings.keys_file)
    revisions = open_bundles(settings).revisions
    address = uvicorn.Config("", host=settings.host, port=settings.port, log_config=None)
    with folder_of_sockets(settings) as folder, address.bind_socket() as listener:
        # the process that forks workers listens there, too
        tempfile.tempdir = folder
        return Supervisor(settings, revisions, listener, Path(folder)).run()


def folder_of_sockets(settings: Settings) -> tempfile.TemporaryDirectory[str]:
    """An empty folder that no other user can enter.

    Raises:
        CommandError: no folder can be written.
    """
    places = [Path(folder) for folder in temporary.folders()]
    if "://" not in settings.index_path:
        places.append(Path(settings.index_path, "scratch"))
    for place in places:
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryDirectory(dir=place)
    raise CommandError(
        "several workers need a folder for their sockets, and none can be written: give the "
        "container --tmpfs /tmp, set TMPDIR to a writable folder, or set workers to 1"
    )


def prepare() -> None:
    """Start the process that workers are forked from, unless it runs. It imports their code once.

    A service manager that signals every process must not end it, because it reports how workers
    end. So it begins with SIGTERM blocked; it ignores SIGINT by itself.
    """
    # it would unblock the signal
    resource_tracker.ensure_running()
    multiprocessing.set_forkserver_preload(["service.server.serving"])
    former = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def begin(*arguments: Any) -> None:
    """Become a worker, with the arguments of ``service.server.serving.work``."""
    from service.server.serving import work

    work(*arguments)


def share(settings: Settings, cores: int) -> Settings:
    """The settings of one worker: its share of cores, cache and connections."""
    workers = settings.workers

    def part(whole: int) -> int:
        return max(1, whole // workers)

    parts = {
        "threads": part(settings.threads or cores),
        "streams": settings.streams and part(settings.streams),
        "cache_bytes": settings.cache_bytes // workers,
        "max_connections": part(settings.max_connections),
    }
    # load() may have made a subclass, which cannot be sent to another process
    return Settings(**(settings.model_dump() | parts))


class Supervisor:
    """Keeps ``settings.workers`` workers running.

    Args:
        revisions: of the bundles; a worker that finds others does not serve.
    """

    def __init__(
        self,
        settings: Settings,
        revisions: tuple[str, ...],
        listener: socket.socket,
        folder: Path,
    ) -> None:
        self._settings = settings
        self._arguments = (share(settings, detect().cores), revisions, listener, folder)
        self._children: dict[int, Child] = {}
        self._signals: list[int] = []
        self._status = 0

    def run(self) -> int:
        """Return when all workers have ended; see the function ``run``."""
        handled = (signal.SIGINT, signal.SIGTERM)
        former = {s: signal.signal(s, lambda s, _: self._signals.append(s)) for s in handled}
        log.info("supervising", workers=self._settings.workers)
        while self._children or not self._signals:
            if not self._signals:
                for number in range(self._settings.workers):
                    if number not in self._children:
                        self._children[number] = self._start(number)
            wait([child.process.sentinel for child in self._children.values()], POLL_SECONDS)
            for number, child in list(self._children.items()):
                if child.process.exitcode is None:
                    self._talk(number, child)
                else:
                    self._replace(number, child)
        for number, handler in former.items():
            signal.signal(number, handler)
        if not self._status and self._signals[0] == signal.SIGINT:
            return 128 + signal.SIGINT
        return self._status

    def _start(self, number: int) -> Child:
        pipe, its_pipe = multiprocessing.Pipe()
        prepare()
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=begin, args=(*self._arguments, number, its_pipe))
        process.start()
        its_pipe.close()
        log.info("worker_started", worker=number, pid=process.pid)
        return Child(process, pipe)

    def _talk(self, number: int, child: Child) -> None:
        """Forward signals, and kill a worker that has been silent for too long."""
        now = time.monotonic()
        try:
            while child.pipe.poll():
                child.pipe.recv()
                child.answered = child.serves = True
            for received in self._signals[child.sent :]:
                child.pipe.send(received)
                child.sent += 1
            if child.answered:
                child.pipe.send(ALIVE)
                child.asked, child.answered = now, False
        except (EOFError, OSError):
            # the worker has just ended
            return
        patience = max(self._settings.engine_timeout, SILENCE_SECONDS)
        # a closing worker answers requests, but no longer the supervisor
        if child.serves and not self._signals and now - child.asked > patience:
            log.error("worker_silent", worker=number, seconds=patience)
            child.process.kill()
            child.serves = False

    def _replace(self, number: int, child: Child) -> None:
        """Forget a worker that has ended; if it could not start, end the other workers too."""
        status = child.process.exitcode
        child.pipe.close()
        del self._children[number]
        if status in UNUSABLE:
            self._status = UNUSABLE[status]
            self._signals.append(signal.SIGINT)
        elif not self._signals:
            log.error("worker_ended", worker=number, status=status)
            time.sleep(PAUSE_SECONDS)


class Scrape:
    """Gives the other workers this worker's metrics, and asks for theirs.

    Args:
        folder: each worker has a Unix socket here; no other user may have access.
    """

    def __init__(self, folder: Path, worker: int, registry: CollectorRegistry) -> None:
        self._folder = folder
        self._worker = worker
        self._registry = registry
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Begin to answer the other workers."""
        path = self._folder / str(self._worker)
        self._server = await asyncio.start_unix_server(self._answer, path)

    async def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.close()

    async def all(self) -> bytes:
        """The metrics of all workers in Prometheus' text format, with the worker as a label."""
        paths = sorted(self._folder.iterdir())
        texts = await asyncio.gather(*map(_ask, paths))
        return generate_latest(_Labelled({p.name: t for p, t in zip(paths, texts, strict=True)}))

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(generate_latest(self._registry))
        await writer.drain()
        writer.close()


async def _ask(path: Path) -> str:
    """A worker's metrics; empty if it has ended or does not answer."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            text = await reader.read()
            writer.close()
    except (OSError, TimeoutError):
        return ""
    return text.decode()


class _Labelled(Collector):
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        for worker, text in self._texts.items():
            for found in text_string_to_metric_families(text):
                metric = metrics.setdefault(
                    found.name, Metric(found.name, found.documentation, found.type)
                )
                for sample in found.samples:
                    labels = {**sample.labels, "worker": worker}
                    metric.add_sample(sample.name, labels, sample.value)
        yield from metrics.values()
