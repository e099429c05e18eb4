"""Workers around one engine beside plain replicas behind one listening socket.

    python -m benchmarks.replicas

Starts every set-up at once and loads them in turn, so that a machine that slows down slows all of
them. Counts requests/s and the servers' CPU time per request; the client shares the cores, so the
second number says more about a larger machine. A replica set is N processes of ``service`` that
inherit one listening socket; each has 1/N of the cores to compute on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.client import Client, Load
from benchmarks.documents import PEPS, read

# the replica: the service, with an inherited socket in place of an address
REPLICA = """
import socket, sys
from export import bundle
from service import logs, server
from service.lifecycle import Service
from service.settings import load
settings = load(sys.argv[2:])
logs.configure(settings.log_level, settings.log_format)
service = Service(settings, bundle.load(settings.bundle))
listener = socket.socket(fileno=int(sys.argv[1]))
server.DrainingServer(server.configure(service), service).run([listener])
"""
COMMON = ("--calibrate=0", "--drain-seconds=0", "--log-level=warning")
CLIENTS = 16
# requests in a turn
COUNTS = {"short texts": 800, "base64, cached": 300, "cached documents": 300}
MODEL = "docsplit-minilm-l6-w512"


@dataclass(frozen=True)
class Servers:
    """A set-up that runs.

    Attributes:
        url: of its one address.
        pids: of its first processes; their children count too.
    """

    url: str
    pids: tuple[int, ...]

    def cpu_seconds(self) -> float:
        """CPU time of all its processes so far."""
        return sum(_cpu_seconds(pid) for pid in _family(self.pids))


def main() -> None:
    """Start, load in turn, print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of the number of requests")
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        client = stack.enter_context(Client())
        setups = {"one process": stack.enter_context(replicas(1, cores))}
        for count in (2, 4):
            threads = max(1, cores // count)
            setups[f"{count} replicas"] = stack.enter_context(replicas(count, threads))
            setups[f"{count} fronts"] = stack.enter_context(fronts(count))
            setups[f"{count} fronts, all cores"] = stack.enter_context(
                fronts(count, f"--threads={cores}")
            )
        rates: dict[tuple[str, str], list[float]] = {}
        costs: dict[tuple[str, str], list[float]] = {}
        loads = workloads()
        for turn in range(given.rounds + 1):
            for load, (path, bodies) in loads.items():
                order = random.Random(turn).sample(sorted(setups.items()), len(setups))
                for setup, servers in order:
                    fresh = [bodies(n, turn) for n in range(round(COUNTS[load] * given.scale))]
                    before = servers.cpu_seconds()
                    answers = client.send(Load(servers.url + path, fresh, CLIENTS))
                    wall = max(a.began + a.seconds for a in answers)
                    failed = [a.status for a in answers if a.status != 200]
                    if failed:
                        raise RuntimeError(f"{setup}, {load}: {failed[:5]}")
                    # the first turn fills caches
                    if turn:
                        rates.setdefault((load, setup), []).append(len(answers) / wall)
                        costs.setdefault((load, setup), []).append(
                            (servers.cpu_seconds() - before) / len(answers) * 1000
                        )
        table = Table("load", "set-up", "requests/s", "CPU ms a request")
        for key, rate in rates.items():
            cells = [
                f"{statistics.median(v):,.{d}f} ({min(v):,.{d}f} to {max(v):,.{d}f})"
                for v, d in ((rate, 0), (costs[key], 2))
            ]
            table.add_row(*key, *cells)
        Console(width=120).print(table)


def workloads() -> dict[str, tuple[str, Callable[[int, int], bytes]]]:
    """Path and body of request ``n`` in a turn, by name; no two bodies are equal byte by byte."""
    texts = [" ".join(text.split()[:4000]) for text in read(PEPS, 8)]
    words = sorted({word for text in texts for word in text.split() if word.isalpha()})
    draw = random.Random(0)
    pool = [" ".join(draw.choices(words, k=8)) for _ in range(500)]

    def short(number: int, turn: int) -> bytes:
        return json.dumps({"inputs": " ".join(random.choices(words, k=8))}).encode()

    def encoded(number: int, turn: int) -> bytes:
        chosen = random.sample(pool, 64)
        return json.dumps({"input": chosen, "encoding_format": "base64", "model": MODEL}).encode()

    def cached(number: int, turn: int) -> bytes:
        # the spaces keep it from the cache of whole answers
        spaces = b" " * (1 + number + 1000 * turn)
        return json.dumps({"inputs": texts[number % 8]}).encode() + spaces

    return {
        "short texts": ("/embed", short),
        "base64, cached": ("/v1/embeddings", encoded),
        "cached documents": ("/embed", cached),
    }


@contextmanager
def replicas(count: int, threads: int) -> Iterator[Servers]:
    """``count`` services behind one socket, each with ``threads`` cores to compute on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        command = [sys.executable, "-c", REPLICA, str(listener.fileno()), *COMMON]
        command += [f"--threads={threads}", f"--streams={threads}"]
        with _running([command] * count, listener.getsockname()[1], listener.fileno()) as servers:
            yield servers


@contextmanager
def fronts(count: int, *flags: str) -> Iterator[Servers]:
    """The service with ``workers``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "service", f"--port={port}", f"--workers={count}"]
    with _running([[*command, *COMMON, *flags]], port) as servers:
        yield servers


@contextmanager
def _running(commands: list[list[str]], port: int, *inherited: int) -> Iterator[Servers]:
    processes = [subprocess.Popen(command, pass_fds=inherited) for command in commands]
    try:
        url = f"http://127.0.0.1:{port}"
        # one answer may come from a replica while another starts; the first turn is not counted
        for _ in range(1200):
            try:
                if httpx.get(f"{url}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        else:
            raise RuntimeError("not ready")
        time.sleep(4)
        yield Servers(url, tuple(process.pid for process in processes))
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(30)


def _family(pids: tuple[int, ...]) -> set[int]:
    found = set(pids)
    for pid in pids:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found |= {int(child) for child in children}
    return found


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
