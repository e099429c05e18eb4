"""The cost of the worst bodies for a replica: memory, time, and latency of other clients.

    python -m benchmarks.security.amplification
    python -m benchmarks.security.amplification --clients 8 --seconds 60

The first command sends each body of ``worst_bodies`` once. It prints the status, the seconds, the
memory above that of the idle service, and the longest response time of ``/livez``.

With ``--clients N``, N clients send random bodies at the same time. The command prints the peak
memory, whether the replica still runs, and the longest response time of ``/livez``. It also prints
the latency of another client's short texts: without attackers, while the attackers send to a server
that only reads, and during the attack. With ``--balancer haproxy`` or ``nginx``, all requests go
through the shipped configuration to two replicas.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import itertools
import multiprocessing
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from benchmarks.security.worst_bodies import Attack, attacks
from tests.conftest import Server, serving
from tests.deploy.balancers import haproxy, nginx

BALANCERS = {"haproxy": haproxy, "nginx": nginx}

KEYS = [f"a-key-of-client-{number:02}-for-benchmarks" for number in range(33)]


@dataclass
class Prober:
    """Requests ``/livez`` repeatedly and records the longest response time in seconds.

    A request that fails counts as long as it took.
    """

    url: str
    longest: float = 0.0
    failed: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Send requests until ``over``."""
        with httpx.Client(timeout=60) as client:
            while not self.over.is_set():
                began = time.monotonic()
                try:
                    client.get(f"{self.url}/livez")
                except httpx.HTTPError:
                    self.failed += 1
                self.longest = max(self.longest, time.monotonic() - began)
                self.over.wait(0.01)


@contextmanager
def probing(url: str) -> Iterator[Prober]:
    """Probe while the block runs."""
    prober = Prober(url)
    thread = threading.Thread(target=prober.run)
    thread.start()
    try:
        yield prober
    finally:
        prober.over.set()
        thread.join()


def prepare(url: str, headers: dict[str, str]) -> None:
    """Make the index and the classifier that the attacks name."""
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        client.put("/indexes/worst", json={"fields": {"a": "integer"}}).raise_for_status()
        documents = [{"id": str(n), "text": f"text {n}", "links": ["0"]} for n in range(20)]
        client.post("/indexes/worst/documents", json={"documents": documents}).raise_for_status()
        examples = {"inputs": ["red", "rot", "blue", "blau"], "labels": ["r", "r", "b", "b"]}
        client.put("/classifiers/worst", json=examples).raise_for_status()


def send(url: str, attack: Attack, seconds: float, headers: dict[str, str]) -> httpx.Response:
    """Send a worst body. Its deadline ends the work of the service."""
    sent = {"content-type": attack.kind, "x-request-timeout": f"{seconds:g}"} | headers
    return httpx.request(
        attack.method, url + attack.path, content=attack.body(), headers=sent, timeout=60
    )


def one_by_one(server: Server, route: str, seconds: float) -> None:
    """Print a line for each attack."""
    print("status  seconds     MB  livez s  route, body")
    for attack in attacks():
        if route not in attack.route:
            continue
        # made in advance, because making it would delay the prober in this process
        ready = replace(attack, body=_made(attack.body()))
        server.forget_peak()
        idle = server.memory("VmRSS")
        began = time.monotonic()
        with probing(server.url) as prober:
            answer = send(server.url, ready, seconds, _key(0))
        took = time.monotonic() - began
        peak = (server.memory("VmHWM") - idle) / 1e6
        print(
            f"{answer.status_code:6}  {took:7.2f}  {peak:5.0f}  {prober.longest:7.2f}  "
            f"{attack.method} {attack.route} {attack.name}",
            flush=True,
        )


def at_once(servers: list[Server], url: str, given: argparse.Namespace) -> None:
    """Print the effects of many attackers at ``url`` on replicas and on a client of short texts.

    Attackers are processes, so they do not slow the timed client. The same attack on a server that
    only reads shows the cost of the attackers on this machine.
    """
    latencies: dict[str, list[float]] = {"quiet": [], "attack on a sink": [], "attack": []}
    statuses: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        probers = [stack.enter_context(probing(server.url)) for server in servers]
        sink = stack.enter_context(_sink())
        for server in servers:
            server.forget_peak()
        for _ in range(given.rounds):
            latencies["quiet"] += _latencies(url, given.seconds / 2, failed)
            for name, target in (("attack on a sink", sink), ("attack", url)):
                begun, over = context.Barrier(given.clients + 1), context.Event()
                answers: multiprocessing.Queue[Counter[str]] = context.Queue()
                crowd = [
                    context.Process(
                        target=_attacker,
                        args=(target, number, given.route, given.body, begun, over, answers),
                    )
                    for number in range(1, given.clients + 1)
                ]
                for process in crowd:
                    process.start()
                begun.wait()
                latencies[name] += _latencies(url, given.seconds, failed)
                over.set()
                # a process ends only after its counts have been read
                counts = [answers.get() for _ in crowd]
                for process in crowd:
                    process.join()
                if name == "attack":
                    statuses.update(sum(counts, Counter()))
    print("answers:", dict(sorted(statuses.items())))
    for server, prober in zip(servers, probers, strict=True):
        print(f"replica: {'ended' if server.process.poll() is not None else 'runs on'};", end=" ")
        print(f"at most {server.memory('VmHWM') / 1e6:.0f} MB;", end=" ")
        print(f"longest /livez {prober.longest:.2f} s, {prober.failed} failed")
    print("short texts that failed:", dict(failed))
    for name, found in latencies.items():
        cut = statistics.quantiles(found, n=100)
        figures = f"p50 {1e3 * cut[49]:.0f} ms, p99 {1e3 * cut[98]:.0f} ms"
        print(f"short texts, {name}: {len(found)}, {figures}")


def _attacker(
    url: str,
    number: int,
    route: str,
    named: str,
    begun: Barrier,
    over: Event,
    answers: multiprocessing.Queue[Counter[str]],
) -> None:
    kinds = [
        replace(attack, body=_made(attack.body()))
        for attack in attacks()
        if attack.first and route in attack.route and re.search(named, attack.name)
    ]
    draw = random.Random(number)
    found: Counter[str] = Counter()
    begun.wait()
    while not over.is_set():
        try:
            found[str(send(url, draw.choice(kinds), 5, _key(number)).status_code)] += 1
        except httpx.HTTPError as error:
            found[type(error).__name__] += 1
    answers.put(found)


@contextmanager
def _sink() -> Iterator[str]:
    """A server that reads each body and answers 413; its URL."""
    program = "import asyncio, re\n" + inspect.getsource(_swallow) + "asyncio.run(_swallow())\n"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()


async def _swallow() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(re.findall(rb"(?i)content-length: *(\d+)", head)[0])
        while left and (part := await reader.read(min(left, 1 << 18))):
            left -= len(part)
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _made(body: bytes) -> Callable[[], bytes]:
    return lambda: body


def _latencies(url: str, seconds: float, failed: Counter[str]) -> list[float]:
    """Seconds of requests one after the other; counts those that fail by status or error."""
    found = []
    numbers = itertools.count()
    until = time.monotonic() + seconds
    with httpx.Client(headers=_key(0), timeout=60) as client:
        while time.monotonic() < until:
            began = time.monotonic()
            body = {"inputs": f"a short text that is new, {next(numbers)} {began}"}
            try:
                client.post(f"{url}/embed", json=body).raise_for_status()
                found.append(time.monotonic() - began)
            except httpx.HTTPStatusError as error:
                failed[str(error.response.status_code)] += 1
            except httpx.HTTPError as error:
                failed[type(error).__name__] += 1
            time.sleep(0.05)
    return found


def _key(number: int) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[number]}"}


def main() -> None:
    """Start a replica and attack it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--clients",
        type=int,
        default=0,
        help="number of clients that attack at once; 0: one by one",
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to attack at once")
    parser.add_argument("--balancer", choices=BALANCERS, help="attack two replicas behind it")
    parser.add_argument(
        "--deadline", type=float, default=5.0, help="seconds for each body, one by one"
    )
    parser.add_argument("--route", default="", help="only routes that contain this")
    parser.add_argument("--body", default="", help="only bodies whose name matches this regex")
    parser.add_argument("--rounds", type=int, default=1, help="how often to attack at once")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--api-keys", ",".join(KEYS), "--index-path", f"{folder}/index"]
        with ExitStack() as stack:
            logs = [Path(folder, f"log{n}") for n in range(2 if given.balancer else 1)]
            servers = [stack.enter_context(serving(log, *flags)) for log in logs]
            url = servers[0].url
            prepare(url, _key(0))
            print("idle:", *(f"{server.memory('VmRSS') / 1e6:.0f} MB" for server in servers))
            if given.balancer:
                ports = [urlsplit(server.url).port or 0 for server in servers]
                url = stack.enter_context(BALANCERS[given.balancer](Path(folder), ports))
            if given.clients:
                at_once(servers, url, given)
            else:
                one_by_one(servers[0], given.route, given.deadline)


if __name__ == "__main__":
    main()
