"""Two bundles under load: their shares of the cores, and how long short texts wait.

    python -m benchmarks.reliability.bundles LARGE

The first bundle is small, the second one large. A share is a bundle's tokens per second under load
of both, over those under its own load, divided by the sum of both quotients. The short texts of
the small bundle come at fixed times, to a service of that bundle only, and to one whose large
bundle has more work than it can do, in turns. The ratio of the two is the median of the rounds.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.rig.client import Answer, Client, Load
from benchmarks.rig.documents import PEPS, read, unseen
from benchmarks.rig.report import Verdict
from benchmarks.rig.server import Service, started
from docsplit.bundles.format import DEFAULT_BUNDLE

CLIENTS, TEXTS, WORDS, SHORT = 8, 4, 200, 12
# more requests than a service answers during a measurement
BODIES = 2000
SHORT_RATE = 20.0
FLAGS = ("--cache-bytes", "0", "--calibrate", "0", "--queue-tokens", "4000000")
NAMES = ("small", "large")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("large", type=Path, help="folder of the large bundle")
    parser.add_argument("--small", type=Path, default=DEFAULT_BUNDLE)
    parser.add_argument("--shares", nargs="+", default=["1,1", "3,1"])
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    console = Console()
    table = Table(title=f"load average {os.getloadavg()[0]:.1f} at the start")
    for heading in (
        "shares",
        "configured",
        "measured",
        "p99 by itself, ms",
        "with the other, ms",
        "aims",
    ):
        table.add_column(heading)
    for shares in given.shares:
        table.add_row(shares, *_measure(given, shares))
    console.print(table)


def _measure(given: argparse.Namespace, shares: str) -> list[str]:
    weights = [float(part) for part in shares.split(",")]
    wanted = weights[0] / sum(weights)
    only = ("--bundle", f"small={given.small}", *FLAGS)
    both = (*only, "--bundle", f"large={given.large}", "--bundle-shares", shares)
    with started(*both, "--index-path", "unused") as service:
        rates = [_rate(service, [name], given.seconds)[name] for name in NAMES]
        together = _rate(service, NAMES, given.seconds)
    parts = [together[name] / rate for name, rate in zip(NAMES, rates, strict=True)]
    share = parts[0] / sum(parts)
    own: list[float] = []
    loaded: list[float] = []
    with started(*only, "--index-path", "unused") as apart, started(*both) as service:
        _post(service.url, "large")
        for _ in range(given.rounds):
            own.append(_slowest(apart, given.seconds))
            with _loaded(service, ["large"]):
                time.sleep(2)
                loaded.append(_slowest(service, given.seconds))
    ratio = statistics.median(late / soon for soon, late in zip(own, loaded, strict=True))
    aims = [
        Verdict("share off by", abs(share / wanted - 1), 0.1, most=True),
        Verdict("p99 ratio", ratio, 2.0, most=True),
    ]
    return [
        f"{wanted:.3f}",
        f"{share:.3f} ({rates[0]:,.0f} and {rates[1]:,.0f} tokens/s by themselves)",
        ", ".join(f"{wait * 1000:.0f}" for wait in own),
        ", ".join(f"{wait * 1000:.0f}" for wait in loaded),
        ", ".join(f"{aim.aim} {aim.figure:.2f} {'held' if aim.held else 'MISSED'}" for aim in aims),
    ]


def _rate(service: Service, names: list[str] | tuple[str, ...], seconds: float) -> dict[str, float]:
    """Tokens per second of the bundles while all have more work than they can do."""
    for name in names:
        _post(service.url, name)
    with _loaded(service, names):
        time.sleep(2)
        before, began = [_tokens(service, name) for name in names], time.monotonic()
        time.sleep(seconds)
        after, taken = [_tokens(service, name) for name in names], time.monotonic() - began
    found = zip(names, before, after, strict=True)
    return {name: (last - first) / taken for name, first, last in found}


@contextmanager
def _loaded(service: Service, names: list[str] | tuple[str, ...]) -> Iterator[None]:
    """Keep clients of each bundle busy during the block, with documents that all differ."""
    short = [" ".join(text.split()[:WORDS]) for text in read(PEPS, 50)]
    texts = unseen(short, seed=random.randrange(10**9))
    clients = [Client() for _ in names]
    running: list[Future[list[Answer]]] = []
    for client, name in zip(clients, names, strict=True):
        bodies = []
        for _ in range(BODIES):
            inputs = [next(texts) for _ in range(TEXTS)]
            bodies.append(orjson.dumps({"inputs": inputs, "model": name}))
        load = Load(f"{service.url}/embed", bodies, CLIENTS)
        running.append(client.__enter__().start(load))
    try:
        yield
    finally:
        for client in clients:
            # the process of the client would go on to the last body
            for process in list(client._pool._processes.values()):
                process.kill()
            client._pool.shutdown(wait=False, cancel_futures=True)


def _slowest(service: Service, seconds: float) -> float:
    """The 99th percentile of the seconds of requests with one short text for the small bundle."""
    draw = random.Random()
    words = [word for text in read(PEPS, 20) for word in text.split() if word.isalpha()]
    count = int(seconds * SHORT_RATE)
    bodies = [
        orjson.dumps({"inputs": " ".join(draw.sample(words, SHORT)), "model": "small"})
        for _ in range(count)
    ]
    times = [number / SHORT_RATE for number in range(count)]
    with Client() as client:
        answers = client.send(Load(f"{service.url}/embed", bodies, times=times))
    if any(answer.status != 200 for answer in answers):
        raise SystemExit("a request failed")
    return float(np.percentile([answer.seconds for answer in answers], 99))


def _tokens(service: Service, name: str) -> float:
    wanted = f'docsplit_model_tokens_total{{model="{name}"}} '
    lines = httpx.get(f"{service.url}/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(wanted))


def _post(url: str, name: str) -> None:
    """Let the service load a bundle."""
    body = {"inputs": f"text {time.time()}", "model": name}
    httpx.post(f"{url}/embed", json=body, timeout=120).raise_for_status()


if __name__ == "__main__":
    main()
