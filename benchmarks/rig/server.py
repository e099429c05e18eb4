"""The service in a separate process, and clients that load it."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.rig import processes


class StartError(RuntimeError):
    """A server ended or was not ready in time. The message is its log."""


@dataclass
class Service:
    """A running service.

    Attributes:
        ready_seconds: time from the start of the process until it was ready.
    """

    url: str
    pid: int
    ready_seconds: float

    def peak_rss_mb(self) -> float:
        """Largest resident set so far, MB."""
        return self._memory_mb("VmHWM")

    def rss_mb(self) -> float:
        """Resident set, MB."""
        return self._memory_mb("VmRSS")

    def cpu_seconds(self) -> float:
        """CPU time of all its processes so far."""
        pids = {self.pid, *processes.children(self.pid)}
        return sum(map(processes.processor_seconds, pids))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, number)

    def _memory_mb(self, name: str) -> float:
        return processes.status(self.pid, name) * 1024 / 1e6

    def info(self) -> dict[str, Any]:
        """GET /info."""
        answer: dict[str, Any] = httpx.get(f"{self.url}/info").json()
        return answer

    def metric(self, name: str) -> float:
        """Value of a metric without labels."""
        for line in httpx.get(f"{self.url}/metrics").text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise KeyError(name)


@contextmanager
def started(*flags: str, patience: float = 60, module: str = "service") -> Iterator[Service]:
    """Start the service with flags and stop it afterwards; ``patience`` is that of `launched`."""
    command = [sys.executable, "-m", module, "--port={port}", "--drain-seconds=0", *flags]
    with launched(command, "/readyz", patience=patience) as service:
        yield service


@contextmanager
def launched(
    command: Sequence[str],
    ready: str,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    patience: float = 60,
) -> Iterator[Service]:
    """Start a server and stop it afterwards.

    Args:
        command: the command. A free port of the loopback address replaces ``{port}``.
        ready: path that answers 200 when the server is ready.
        cwd: working directory of the server.
        env: variables in addition to those of this process.
        patience: seconds until it must be ready.

        Raises:
            StartError: the server ended or was not ready in time.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    arguments = [part.replace("{port}", str(port)) for part in command]
    began = time.monotonic()
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            arguments, cwd=cwd, env=os.environ | (env or {}), stdout=log, stderr=log
        ) as process,
    ):
        try:
            while True:
                if process.poll() is not None or time.monotonic() - began > patience:
                    log.seek(0)
                    raise StartError(log.read().decode())
                try:
                    if httpx.get(f"{url}{ready}").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                time.sleep(0.02)
            yield Service(url, process.pid, time.monotonic() - began)
        finally:
            _end(process)


@contextmanager
def on_copy(index_path: Path) -> Iterator[httpx.Client]:
    """A client of a service that runs on a copy of stored indexes."""
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(index_path, f"{work}/index")
        flags = (f"--index-path={work}/index", "--request-timeout=590")
        with (
            started(*flags) as service,
            httpx.Client(base_url=service.url, timeout=600) as client,
        ):
            yield client


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # a stopped process would not receive the signal to end
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def call(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    """The answer's body."""
    answer = client.request(method, path, json=body)
    answer.raise_for_status()
    return answer.json()


def load(url: str, requests: Sequence[Sequence[str]], clients: int) -> float:
    """Post each group of texts to /embed from ``clients`` threads; seconds for all."""

    def post(texts: Sequence[str]) -> None:
        answer = client.post("/embed", json={"inputs": list(texts)})
        answer.raise_for_status()

    with (
        httpx.Client(base_url=url, timeout=600) as client,
        concurrent.futures.ThreadPoolExecutor(clients) as pool,
    ):
        began = time.monotonic()
        list(pool.map(post, requests))
        return time.monotonic() - began


def windows(url: str, texts: Sequence[str]) -> list[str]:
    """The windows that the service cuts the documents into, as texts."""
    cut: list[str] = []
    for text in texts:
        answer = httpx.post(
            f"{url}/embed", json={"inputs": text, "windows": True, "dimensions": 1}, timeout=600
        )
        [spans] = answer.raise_for_status().json()["windows"]
        cut += [text[span["start"] : span["end"]] for span in spans]
    return cut
