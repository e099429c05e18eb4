"""Throughput of ``POST /embed`` by number of workers, and the cores that the service uses.

    python -m benchmarks.engines.served
    python -m benchmarks.engines.served --engine onnx-cuda --workers 1,2,4 --tokens 4000000
    python -m benchmarks.engines.served --instant --workers 1 --tokens 200000

The set-ups start together and are loaded in turn, without a cache. The texts are those of the PEPs
with shuffled words. The client runs in a process of its own on the same machine. With ``--instant``
the engine takes no time, so the processor time is that of everything else.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.rig.client import Client, Load
from benchmarks.rig.documents import PEPS, read, unseen
from benchmarks.rig.server import Service, started
from docsplit.bundles.format import DEFAULT_BUNDLE, load

INSTANT = "benchmarks.engines.instant"
# words of a text, texts of a request
KINDS = {"short texts": (30, 32), "articles": (600, 1), "whole documents": (6000, 1)}
HEADINGS = (
    "| load | workers | documents/s | tokens/s | lowest to highest | service's cores | µs a token |"
)


@dataclass(frozen=True)
class Work:
    """The requests of one kind.

    Attributes:
        bodies: one for each request.
        documents: texts in all of them.
        tokens: tokens in all of them, without special tokens.
    """

    bodies: list[bytes]
    documents: int
    tokens: int


def work(tokenizer: Tokenizer, words: int, texts: int, tokens: int) -> Work:
    """Requests of ``texts`` texts of ``words`` words, with about ``tokens`` tokens in all."""
    bodies: list[bytes] = []
    seen = 0
    made = _texts(words)
    while seen < tokens:
        group = list(itertools.islice(made, texts))
        seen += sum(len(one.ids) for one in tokenizer.encode_batch(group, add_special_tokens=False))
        bodies.append(json.dumps({"inputs": group}).encode())
    return Work(bodies, texts * len(bodies), seen)


def _texts(words: int) -> Iterator[str]:
    # a text that repeats itself would have equal windows, which the service computes once
    stream = itertools.chain.from_iterable(text.split() for text in unseen(read(PEPS, 500)))
    while True:
        yield " ".join(itertools.islice(stream, words))


def measure(client: Client, service: Service, given: Work, clients: int) -> tuple[float, float]:
    """Seconds that the requests took, and processor time of the service in that time."""
    before = service.cpu_seconds()
    answers = client.send(Load(f"{service.url}/embed", given.bodies, clients))
    wall = max(one.began + one.seconds for one in answers)
    failed = [one.status for one in answers if one.status != 200]
    if failed:
        raise SystemExit(f"benchmarks.engines.served: {len(failed)} requests failed: {failed[:3]}")
    return wall, service.cpu_seconds() - before


def main() -> int:
    """Start, load in turn, and print medians."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engines.served",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--bundle", type=Path, default=DEFAULT_BUNDLE)
    add("--engine", default="auto")
    add("--instant", action="store_true", help="an engine that takes no time")
    add("--workers", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    add("--clients", type=int, default=16)
    add("--tokens", type=int, default=40_000, help="tokens of a load (default: 40000)")
    add("--rounds", type=int, default=3)
    given = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(load(given.bundle).path("tokenizer.json")))
    loads = {name: work(tokenizer, *sizes, given.tokens) for name, sizes in KINDS.items()}
    seconds, cores = defaultdict(list), defaultdict(list)
    with ExitStack() as stack:
        client = stack.enter_context(Client())
        services = {
            workers: stack.enter_context(
                started(
                    f"--bundle={given.bundle}",
                    f"--engine={given.engine}",
                    f"--calibrate={0 if given.instant else 1}",
                    f"--workers={workers}",
                    "--cache-bytes=0",
                    "--log-level=warning",
                    patience=180,
                    module=INSTANT if given.instant else "service",
                )
            )
            for workers in given.workers
        }
        # one worker answers while others start
        time.sleep(5)
        print("the services are ready", file=sys.stderr, flush=True)
        for turn in range(given.rounds + 1):
            for name, one in loads.items():
                for workers in random.Random(turn).sample(given.workers, len(given.workers)):
                    wall, used = measure(client, services[workers], one, given.clients)
                    print(
                        f"{turn}: {name}, {workers} workers, {wall:.1f} s",
                        file=sys.stderr,
                        flush=True,
                    )
                    # the first turn is the warm-up
                    if turn:
                        seconds[name, workers].append(wall)
                        cores[name, workers].append(used / wall)
    print(HEADINGS)
    print("|---|---|---|---|---|---|---|")
    for (name, workers), taken in sorted(
        seconds.items(), key=lambda pair: list(KINDS).index(pair[0][0])
    ):
        rates = sorted(loads[name].tokens / one for one in taken)
        documents = loads[name].documents / statistics.median(taken)
        used = statistics.median(cores[name, workers])
        print(
            f"| {name} | {workers} | {documents:,.0f} | {statistics.median(rates):,.0f} "
            f"| {rates[0]:,.0f} to {rates[-1]:,.0f} | {used:.1f} "
            f"| {used / statistics.median(rates) * 1e6:.1f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
