"""Compare one process with several workers.

    python -m benchmarks.comparison.workers

The command starts every set-up at once and loads them in turn, so a slower machine slows all of
them. It measures requests/s and the servers' CPU time per request. The client shares the cores, so
the second number shows more about a larger machine.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.table import Table

from benchmarks.rig.client import Client, Load
from benchmarks.rig.documents import PEPS, read
from benchmarks.rig.server import Service, started
from docsplit.bundles.format import DEFAULT_BUNDLE

CLIENTS = 16
# requests in one turn
COUNTS = {"short texts": 800, "base64, cached": 300, "cached documents": 300}
MODEL = DEFAULT_BUNDLE.name


def main() -> None:
    """Start, load in turn, and print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="factor of the number of requests")
    given = parser.parse_args()
    with ExitStack() as stack:
        client = stack.enter_context(Client())
        setups = {f"{n} workers": stack.enter_context(running(n)) for n in (1, 2, 4)}
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
        # a field that the route ignores keeps it from the cache of whole answers
        return json.dumps({"inputs": texts[number % 8], "user": f"{turn} {number}"}).encode()

    return {
        "short texts": ("/embed", short),
        "base64, cached": ("/v1/embeddings", encoded),
        "cached documents": ("/embed", cached),
    }


@contextmanager
def running(workers: int) -> Iterator[Service]:
    """The service with a number of workers."""
    with started(f"--workers={workers}", "--calibrate=0", "--log-level=warning") as service:
        # one worker answers while others start; the first turn is not counted
        time.sleep(4)
        yield service


if __name__ == "__main__":
    main()
