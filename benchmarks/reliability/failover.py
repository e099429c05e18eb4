"""How long the loss of a replica or of Redis affects callers behind the shipped balancers.

    python -m benchmarks.reliability.failover

Three replicas run behind HAProxy and nginx, with two clients at each. The events follow one after
the other: a replica gets SIGTERM and starts again, a replica is killed and starts again, Redis is
killed and starts again, all replicas restart in turn. For each event the command prints the failed
requests, the median latency in the ten seconds before, the worst latency since, and the time until
recovery. That time starts when the process has ended or is ready. It ends when the medians of three
consecutive seconds are at most 1.5 times the median before. The command needs haproxy, nginx and
redis-server.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from tests.conftest import wait_ready
from tests.deploy.balancers import haproxy, nginx
from tests.deploy.replica import Replica, running
from tests.redis_server import RedisServer

CLIENTS = 2
PAUSE = 0.1
BASE_SECONDS = 10.0
AFTER_SECONDS = 20.0
# a second counts as recovered if its median is at most this multiple of the median before
TOLERANCE = 1.5
IN_A_ROW = 3
TEXT = "Document {} of a load that never rests speaks of failing over."


@dataclass
class Watch:
    """The answers that clients got: time of the answer and its latency in seconds."""

    answers: list[tuple[float, float]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def median(self, begin: float, end: float) -> float | None:
        """Median of the latencies in this span; None if there was no answer."""
        found = [took for at, took in self.answers if begin <= at < end]
        return statistics.median(found) if found else None

    def back_after(self, base: float, since: float, until: float) -> float:
        """Seconds from ``since`` to the first of three consecutive recovered seconds.

        Infinite if there are none until ``until``.
        """
        row = 0
        for second in range(int(until - since)):
            found = self.median(since + second, since + second + 1)
            row = row + 1 if found is not None and found <= TOLERANCE * base else 0
            if row == IN_A_ROW:
                return second + 1.0 - IN_A_ROW
        return float("inf")


def main() -> None:
    """Break, watch and report."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    console = Console(highlight=False)
    table = Table("event", "requests", "failed", "median before, ms", "worst, ms", "back after, s")
    with tempfile.TemporaryDirectory() as work, ExitStack() as stack:
        folder = Path(work)
        redis = RedisServer(folder)
        stack.callback(redis.close)
        flags = ("--index-path", str(folder / "index"), "--redis-url", redis.url)
        replicas = [Replica(folder, f"replica-{n}", flags) for n in range(3)]
        ports = stack.enter_context(running(*replicas))
        urls = [
            stack.enter_context(haproxy(folder, ports)),
            stack.enter_context(nginx(folder, ports)),
        ]
        for name, event in _events(replicas, redis).items():
            with console.status(name), _watched(urls) as watch:
                time.sleep(BASE_SECONDS + 1)
                began = time.monotonic()
                event()
                over = time.monotonic()
                time.sleep(AFTER_SECONDS)
            base = watch.median(began - BASE_SECONDS, began)
            if base is None:
                raise RuntimeError(f"nothing was answered before: {watch.failures[:3]}")
            after = [took for at, took in watch.answers if at >= began]
            table.add_row(
                name,
                str(len(watch.answers)),
                str(len(watch.failures)),
                f"{base * 1000:.0f}",
                f"{max(after) * 1000:.0f}",
                f"{watch.back_after(base, over, over + AFTER_SECONDS):.0f}",
            )
            for failure in watch.failures[:3]:
                console.print(failure, markup=False)
    console.print(table)


def _events(replicas: list[Replica], redis: RedisServer) -> dict[str, Callable[[], object]]:
    def rolling() -> None:
        for replica in replicas:
            replica.restart(signal.SIGTERM)

    def lose_redis() -> None:
        redis.kill()
        time.sleep(AFTER_SECONDS / 2)
        redis.start()

    return {
        "SIGTERM of a replica": lambda: replicas[0].end(signal.SIGTERM),
        "it starts again": lambda: _start(replicas[0]),
        "kill -9 of a replica": lambda: replicas[1].end(signal.SIGKILL),
        "it starts again, too": lambda: _start(replicas[1]),
        "kill -9 of Redis, and back": lose_redis,
        "restart of all in turn": rolling,
    }


def _start(replica: Replica) -> None:
    replica.start()
    wait_ready(replica.server)


@contextmanager
def _watched(urls: list[str]) -> Iterator[Watch]:
    """Clients that post a new text, wait a little, and post the next."""
    watch, over, numbers = Watch(), threading.Event(), itertools.count(time.monotonic_ns())

    def ask(url: str) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            while not over.is_set():
                began = time.monotonic()
                try:
                    answer = client.post("/embed", json={"inputs": TEXT.format(next(numbers))})
                except httpx.TransportError as error:
                    watch.failures.append(f"{url}: {error!r}")
                else:
                    now = time.monotonic()
                    if answer.status_code == 200:
                        watch.answers.append((now, now - began))
                    else:
                        watch.failures.append(f"{url}: {answer.status_code} {answer.text}")
                time.sleep(PAUSE)

    threads = [threading.Thread(target=ask, args=(url,)) for url in urls for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield watch
    finally:
        over.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
