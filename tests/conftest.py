"""Real parts for tests: the shipped bundle, the shipped documents, a server over a socket."""

from __future__ import annotations

import asyncio
import csv
import gc
import gzip
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import hypothesis
import pytest

import service.index  # noqa: F401  before any test imports lancedb: it postpones a slow part
from benchmarks.rig.processes import forget_peak, status
from tests import forked, storage
from tests.scheduling import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler

if TYPE_CHECKING:
    from tests.fault_proxy import FaultProxy
    from tests.s3_server import S3Server

ROOT = Path(__file__).resolve().parent.parent

# whether tests run longer, with more examples
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
# marks a case whose property a cheaper case tests in every run
ONLY_NIGHTLY = pytest.mark.skipif(not NIGHTLY, reason="`make nightly` runs it")

# Each takes a minute or more. They start first, so that none runs by itself at the end.
LONGEST = (
    "test_lint.py",
    "test_readme.py",
    "test_abandonment.py",
    "test_amplification.py",
    "test_generations.py",
    "test_bulk.py",
    "test_cluster.py",
    "test_openapi.py",
    "test_balancers.py",
    "test_crashes.py",
    "test_kills.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tests of indexes and classifiers run on an S3 server."""
    parser.addoption("--index-storage", choices=("folder", "s3"), default="folder")


@pytest.fixture(scope="session", autouse=True)
def index_storage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The place of all stores, see ``tests.storage``."""
    if request.config.getoption("--index-storage") == "s3":
        storage.begin(tmp_path_factory.mktemp("storage"))
    yield
    storage.end()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of tests that are coroutines; each has its own."""
    return "asyncio"


@pytest.fixture(autouse=True)
def logs_as_found() -> Iterator[None]:
    """Undo what a command called in a test configures: it sets the level of all loggers."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers
    yield
    root.setLevel(level)
    root.handlers = handlers


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files by their time."""
    if config.getoption("--index-storage") == "s3":
        storage.skip_folders(items)
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(LONGEST)))


def pytest_configure() -> None:
    """Collect tests without garbage collection, which would take a fifth of that time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude what collecting imported from garbage collection: a pass over it takes 0.3 s."""
    gc.freeze()
    gc.enable()


# HYPOTHESIS_PROFILE=nightly tests far more examples; a deadline would fail on a busy machine
hypothesis.settings.register_profile("short", deadline=None)
hypothesis.settings.register_profile("nightly", max_examples=5000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))
NIGHTLY_TIMES = 200

# the test processes share the cores; spinning threads would take them from each other
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# httpx.get and similar calls read the certificate authorities each time, 40 ms of a core. From a
# folder they are only read when a connection needs one, and none here does.
os.environ["SSL_CERT_FILE"], os.environ["SSL_CERT_DIR"] = "", str(ROOT / "tests")


@dataclass
class Server:
    """A running service."""

    url: str
    process: subprocess.Popen[bytes] | forked.Forked
    log: Path

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        for line in httpx.get(f"{self.url}/metrics", timeout=60).text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"no metric {name}")

    def memory(self, field: str = "VmRSS") -> int:
        """Resident bytes of the process on Linux: ``VmRSS`` now, ``VmHWM`` at most."""
        return 1024 * status(self.process.pid, field)

    def threads(self) -> int:
        """Threads of the process on Linux."""
        return status(self.process.pid, "Threads")

    def forget_peak(self) -> None:
        """Reset ``VmHWM`` to the memory in use now."""
        forget_peak(self.process.pid)


def examples(number: int) -> hypothesis.settings:
    """So many examples for a test of a running service; 200 times as many at night."""
    return hypothesis.settings(
        max_examples=number * NIGHTLY_TIMES if NIGHTLY else number,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def connect(server: Server, seconds: float = 60) -> socket.socket:
    """A connection on which each call may take this long."""
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=seconds)


def slow_reader(host: str, port: int) -> socket.socket:
    """A connection with the smallest buffer that the kernel allows for the client."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.settimeout(30)
    opened.connect((host, port))
    return opened


def answered(connection: socket.socket) -> HTTPResponse:
    """The answer that comes on a connection; its body is yet to be read."""
    answer = HTTPResponse(connection)
    answer.begin()
    return answer


# Each process of pytest-xdist takes ports from a range of its own, below those that the system
# gives out. Otherwise two processes could take one port before either listens, and HAProxy, which
# shares its ports (SO_REUSEPORT), would answer the other's requests.
_PORTS = 2500
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw8").removeprefix("gw")) % 9
_ports = cycle(range(10_000 + _PORTS * _WORKER, 10_000 + _PORTS * (_WORKER + 1)))
# other runs of the tests on this machine begin elsewhere
next(islice(_ports, os.getpid() % _PORTS, None))


def free_port() -> int:
    """A port of the loopback address that nothing listens on and no other test takes."""
    for port in islice(_ports, _PORTS):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


@contextmanager
def serving(
    log: Path,
    *flags: str,
    tree: Path = ROOT,
    fresh: bool = False,
    module: str = "service",
) -> Iterator[Server]:
    """Start a service, wait until it is ready, end it afterwards.

    Args:
        log: gets its log.
        flags: of ``docsplit-serve``.
        tree: checkout of the code.
        fresh: run ``python -m service`` itself, see ``tests.forked``.
        module: to run instead, with the arguments of ``docsplit-serve``.
    """
    port = free_port()
    command = ["--port", str(port), "--drain-seconds", "0"]
    # calibrated starts have their own test; with streams set, no single-stream engine is compiled,
    # unlike for the fixture `server`
    command += ["--calibrate", "0", "--streams", "2"]
    command += ["--index-path", str(log.with_name("index")), *flags]
    paths = [place + 1 for place, flag in enumerate(command) if flag == "--index-path"]
    command = [storage.placed(v) if place in paths else v for place, v in enumerate(command)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("DOCSPLIT_")}
    process: subprocess.Popen[bytes] | forked.Forked
    # the service itself forks its workers, and the measuring of coverage begins with a new program
    measured = any(name.startswith("COVERAGE_PROCESS") for name in env)
    if fresh or measured or tree != ROOT or "--workers" in flags:
        start = [sys.executable, "-m", module, *command]
        with log.open("wb") as stream:
            process = subprocess.Popen(start, stderr=stream, cwd=tree, env=env)
    else:
        log.write_bytes(b"")
        process = forked.Forked(command, log, env, tree, module)
    server = Server(f"http://127.0.0.1:{port}", process, log)
    try:
        wait_ready(server)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()


def wait_ready(server: Server, seconds: float = 120) -> None:
    """Return when /readyz answers 200; fail if the process ends first."""
    until = time.monotonic() + seconds
    address = urlsplit(server.url)
    while time.monotonic() < until:
        if server.process.poll() is not None:
            raise AssertionError(f"the server ended: {server.log.read_text()}")
        # a call of httpx takes 3 ms of a core, and an answer of the service 5
        asking = HTTPConnection(str(address.hostname), address.port, timeout=5)
        try:
            asking.request("GET", "/readyz")
            if asking.getresponse().status == 200:
                return
        except (HTTPException, OSError):
            pass
        finally:
            asking.close()
        time.sleep(0.1)
    raise AssertionError(f"not ready after {seconds} s: {server.log.read_text()}")


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Return when the condition holds; fail if it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.05)


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fail if it does not hold within 5 seconds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition never held")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service with the streams of `make serve`."""
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(log, "--streams", "0") as running:
        yield running


@pytest.fixture(scope="session")
def light(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Flags of a service for tests that read no vector and need no busy engine.

    It starts with a fifth of the processor time.
    """
    from tests.light_bundle import seal_light

    folder = tmp_path_factory.mktemp("light") / "bundle"
    seal_light(folder)
    return "--bundle", str(folder)


@pytest.fixture(scope="session")
def start_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of weights that sentence-transformers can open, too; it takes 40 s of a core."""
    from tests.start_bundle import export_start

    folder = tmp_path_factory.getbasetemp()
    return export_start(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)


@pytest.fixture(scope="session")
def light_server(
    tmp_path_factory: pytest.TempPathFactory, light: tuple[str, ...]
) -> Iterator[Server]:
    """A service that embeds long texts at once; a file may use it as its ``server``."""
    with serving(tmp_path_factory.mktemp("light") / "log", *light) as running:
        yield running


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with empty buckets; each test uses a prefix of its own."""
    from tests.s3_server import S3Server

    server = S3Server(tmp_path_factory.mktemp("s3") / "log")
    yield server
    server.close()


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy before the S3 server; clients of this process and its children use it."""
    from tests.fault_proxy import FaultProxy
    from tests.s3_server import variables

    proxy = FaultProxy(s3.port)
    for name, value in variables(proxy.port).items():
        monkeypatch.setenv(name, value)
    yield proxy
    proxy.close()


@pytest.fixture(scope="session")
def peps() -> dict[str, str]:
    """Text of every shipped PEP by id."""
    path = ROOT / "examples" / "peps" / "documents.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return {row["id"]: row["text"] for row in map(json.loads, lines)}


@pytest.fixture(scope="session")
def long_document(peps: dict[str, str]) -> str:
    """8,000 words of real text."""
    words = 0
    parts = []
    for text in peps.values():
        parts.append(text)
        words += len(text.split())
        if words >= 8_000:
            return "\n\n".join(parts)
    raise AssertionError("the examples are too short")


@pytest.fixture(scope="session")
def citations() -> list[tuple[str, str]]:
    """Pairs (citing, cited) of PEP ids."""
    with (ROOT / "examples" / "peps" / "citations.csv").open(encoding="utf-8") as rows:
        return [(row["citing"], row["cited"]) for row in csv.DictReader(rows)]
