"""Behaviour of the service under overload, and when it loses its cache server.

    python -m benchmarks.reliability.overload tenfold --data news20.parquet --split test
    python -m benchmarks.reliability.overload crowd
    python -m benchmarks.reliability.overload redis --seconds 60
    python -m benchmarks.reliability.overload soak --seconds 3600

tenfold: ten times the requests that it can answer. crowd: 512 clients come at once and leave.
redis: the cache server is killed, started again, frozen and thawed under load. soak: mixed load for
a long time. The command prints each aim with its figure and exits with 1 if one is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.rig import documents, server
from benchmarks.rig.client import Answer, Client, Load
from benchmarks.rig.report import Verdict
from tests.redis_server import RedisServer

DEADLINE = 5.0
TIMES = 10
CROWD = 512
CLIENTS = 16
# seconds of one part of the soak
PART = 20
CONSOLE = Console(highlight=False)


def main() -> None:
    """Load, compare and report."""
    given = _options()
    texts = documents.read(given.data, given.documents, split=given.split)
    with tempfile.TemporaryDirectory() as work, Client() as client:
        flags = [f"--index-path={work}/index", *given.flags]
        run = {"tenfold": tenfold, "crowd": crowd, "redis": redis, "soak": soak}[given.what]
        verdicts = run(client, texts, given.seconds, flags)
    table = Table("", "measured", "aim", "")
    for verdict in verdicts:
        bound = f"{'≤' if verdict.most else '≥'} {verdict.bound:g}"
        held = "held" if verdict.held else "MISSED"
        table.add_row(verdict.aim, f"{verdict.figure:.4g}", bound, held)
    CONSOLE.print(table)
    sys.exit(int(not all(verdict.held for verdict in verdicts)))


def tenfold(
    client: Client, texts: Sequence[str], seconds: float, flags: Sequence[str]
) -> list[Verdict]:
    """Ten times the peak rate, each request with a deadline."""
    with server.started(*flags, "--cache-bytes=0") as service:
        url = f"{service.url}/embed"
        fresh = documents.unseen(texts)
        with CONSOLE.status("measuring the peak rate"):
            for _ in range(2):
                bodies = _bodies(list(itertools.islice(fresh, len(texts))))
                peak = _goodput(client.send(Load(url, bodies, CLIENTS)))
        base = service.rss_mb()
        draw = random.Random(0)
        times = list(_moments(draw, TIMES * peak, seconds))
        load = Load(
            url,
            _bodies(list(itertools.islice(fresh, len(times)))),
            times=times,
            # the service answers at the deadline; the client hangs up a little later
            patience=DEADLINE + 1,
            headers={"x-request-timeout": f"{DEADLINE:g}"},
        )
        with CONSOLE.status(f"{TIMES * peak:.0f} requests a second for {seconds:g} s"):
            answers = client.send(load)
        back = _until(lambda: service.rss_mb() <= 1.1 * base, 30)
    statuses = Counter(answer.status for answer in answers)
    CONSOLE.print(f"peak {peak:.1f} documents/s; answers by status: {dict(statuses)}")
    good = [answer for answer in answers if answer.status == 200]
    late = float(np.quantile([a.seconds for a in good], 0.99)) if good else float("inf")
    goodput = len(good) / max(seconds, *(a.began + a.seconds for a in good)) if good else 0.0
    wrong = sum(n for status, n in statuses.items() if status >= 500 and status not in (503, 504))
    return [
        Verdict("5xx other than 503 and 504", wrong, 0, most=True),
        Verdict("without an answer", statuses[0], 0, most=True),
        Verdict("goodput / peak", goodput / peak, 0.9),
        Verdict("p99 of what was accepted, s", late, DEADLINE, most=True),
        Verdict("s until memory is within 10 % of before", back, 30, most=True),
    ]


def crowd(
    client: Client, texts: Sequence[str], seconds: float, flags: Sequence[str]
) -> list[Verdict]:
    """512 clients post one document each at the same time and hang up after a second."""
    with server.started(*flags, "--cache-bytes=0") as service:
        url = f"{service.url}/embed"
        bodies = _bodies(list(itertools.islice(documents.unseen(texts), CLIENTS + CROWD)))
        client.send(Load(url, bodies[:CLIENTS], CLIENTS))
        client.send(Load(url, bodies[CLIENTS:], times=[0.0] * CROWD, patience=1.0))
        began = time.monotonic()
        probe = httpx.post(url, json={"inputs": "Is anybody there?"}, timeout=60)
        taken = time.monotonic() - began
    return [
        Verdict("probe answered with 200", float(probe.status_code == 200), 1),
        Verdict("s from their leaving to its answer", taken, 2, most=True),
    ]


def redis(
    client: Client, texts: Sequence[str], seconds: float, flags: Sequence[str]
) -> list[Verdict]:
    """Kill -9, start, STOP, CONT, each for a fifth of the time, under load."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(RedisServer(Path(folder))) as cache,
        server.started(*flags, "--cache-bytes=0", f"--redis-url={cache.url}") as service,
    ):
        url = f"{service.url}/embed"
        rate = _goodput(client.send(Load(url, _bodies(texts), CLIENTS)))
        steps = [None, cache.kill, cache.start, cache.freeze, cache.thaw]
        draw = random.Random(0)
        fresh = documents.unseen(texts)
        count = max(CLIENTS, round(rate * 2))

        def part() -> Future[list[Answer]]:
            # Redis already holds half of them
            mixed = [draw.choice(texts) if n % 2 else next(fresh) for n in range(2 * count)]
            return client.start(Load(url, _bodies(mixed), CLIENTS))

        pending = part()
        done: list[Answer] = []
        with Progress(console=CONSOLE) as progress:
            for step in progress.track(steps, description="faults"):
                if step is not None:
                    step()
                until = time.monotonic() + seconds / len(steps)
                while time.monotonic() < until:
                    if pending.done():
                        done += pending.result()
                        pending = part()
                    time.sleep(0.05)
        done += pending.result()
    statuses = Counter(answer.status for answer in done)
    slowest = max(answer.seconds for answer in done)
    CONSOLE.print(f"{len(done)} answers by status: {dict(statuses)}; slowest {slowest:.2f} s")
    return [Verdict("failed requests", len(done) - statuses[200], 0, most=True)]


def soak(
    client: Client, texts: Sequence[str], seconds: float, flags: Sequence[str]
) -> list[Verdict]:
    """Short texts, new and repeated documents, 1 and 16 per request, for a long time."""
    draw = random.Random(0)
    fresh = documents.unseen(texts)
    hot = texts[:CLIENTS]
    rates: list[float] = []
    memory: list[float] = []
    statuses = Counter[int]()
    # a small cache fills within minutes, so its growth does not look like a leak
    small = "--cache-bytes=4000000"
    with server.started(small, *flags) as service, Progress(console=CONSOLE) as progress:
        url = f"{service.url}/embed"
        rate = _goodput(client.send(Load(url, _bodies(texts), CLIENTS)))
        count = max(CLIENTS, round(rate * PART))
        task = progress.add_task("soak", total=seconds)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds or len(rates) < 2:
            progress.update(task, completed=passed)
            bodies = []
            for number in range(count):
                short = " ".join(draw.choice(texts).split()[:30])
                group = [text[:500] for text in draw.sample(texts, min(16, len(texts)))]
                single = (next(fresh), draw.choice(hot), short)[number % 3]
                bodies.append(json.dumps({"inputs": single if number % 20 else group}).encode())
            answers = client.send(Load(url, bodies, CLIENTS))
            statuses.update(answer.status for answer in answers)
            rates.append(_goodput(answers))
            memory.append(service.rss_mb())
    tenth = max(1, len(rates) // 10)
    CONSOLE.print(f"answers by status: {dict(statuses)}; at the end {memory[-1]:.0f} MB")
    grown = float(np.median(memory[-tenth:]) / np.median(memory[tenth : 2 * tenth]))
    slower = float(np.median(rates[-tenth:]) / np.median(rates[:tenth]))
    return [
        Verdict("failed requests", statuses.total() - statuses[200], 0, most=True),
        Verdict("memory, last tenth of the time / second tenth", grown, 1.02, most=True),
        Verdict("requests/s, last tenth of the time / first", slower, 0.9),
        Verdict("memory at the end, MB", memory[-1], 1200, most=True),
    ]


def _bodies(texts: Sequence[str]) -> list[bytes]:
    return [json.dumps({"inputs": text}).encode() for text in texts]


def _moments(draw: random.Random, rate: float, seconds: float) -> Iterator[float]:
    moment = draw.expovariate(rate)
    while moment < seconds:
        yield moment
        moment += draw.expovariate(rate)


def _goodput(answers: Sequence[Answer]) -> float:
    good = [answer for answer in answers if answer.status == 200]
    return len(good) / max(a.began + a.seconds for a in good) if good else 0.0


def _until(condition: Callable[[], bool], most: float) -> float:
    began = time.monotonic()
    while not condition() and time.monotonic() - began <= most:
        time.sleep(0.1)
    return time.monotonic() - began


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m benchmarks.reliability.overload",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("tenfold", "crowd", "redis", "soak"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--data", type=Path, default=documents.PEPS, help="JSONL or Parquet")
    parser.add_argument("--split", help="only rows of --data with this value in the column split")
    parser.add_argument("--documents", type=int, default=64, help="number of documents to draw")
    parser.add_argument("flags", nargs="*", help="flags of docsplit-serve, after --")
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    main()
