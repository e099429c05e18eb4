"""What does a request wait for if the index is in a bucket?

    python -m benchmarks.index.bucket_latency documents.jsonl --documents 5000

The store is the S3 server of the tests, behind a proxy that counts requests and bytes, and delays
answers. That server is slow, so its times say nothing about a real store. What holds for any store
are requests, megabytes, and *turns*, the number of answers that must come one after the other. A
store that answers after L ms adds turns · L ms. Delays of 0 and of ``--delay`` ms measure them.

With nginx installed, later requests are also measured with the shipped cache on a local disk, after
another process has filled it by ``--filling`` requests of each kind for other documents.

The documents are those of ``benchmarks.index.search_modes``. "First" is the first request of a
process that has read one document, or none; the others come later. A folder with the same
documents is the control.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.index.search_modes import MODES, NAME, build, settled
from benchmarks.rig import documents, server
from benchmarks.rig.server import call
from tests.deploy.balancers import find
from tests.deploy.bucket_cache import caching
from tests.fault_proxy import FaultProxy
from tests.s3_server import BUCKET, S3Server, variables

READ, WRITE = "read of a document", "write of a document"
# requests before the later ones count
WARM_UP = 5


class Cost(NamedTuple):
    """What one request took: medians."""

    seconds: float
    requests: float
    megabytes: float


def main() -> None:
    """Build, measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--texts", type=int, default=1000, help="texts to read from the file")
    parser.add_argument("--requests", type=int, default=20, help="later requests of each kind")
    parser.add_argument("--filling", type=int, default=100, help="requests that fill the cache")
    parser.add_argument("--starts", type=int, default=3, help="first requests of each kind")
    parser.add_argument("--delay", type=float, default=100, help="ms")
    given = parser.parse_args()
    if given.filling < 3 * (WARM_UP + 1):
        parser.error(f"--filling: give {3 * (WARM_UP + 1)} or more")
    texts = documents.read(given.source, given.texts)
    draw = np.random.default_rng(1)
    count = WARM_UP + given.requests
    drawn = draw.choice(given.documents, count + given.filling, replace=False).tolist()
    numbers, filling = drawn[:count], drawn[count:]
    table = Table("request", "", "folder: ms", "bucket: requests", "MB", "turns")
    with tempfile.TemporaryDirectory() as work:
        store = S3Server(Path(work, "log"))
        proxy = FaultProxy(store.port)
        os.environ.update(variables(proxy.port))
        folder, bucket = f"{work}/index", f"s3://{BUCKET}/index"
        try:
            for path in (folder, bucket):
                asyncio.run(build(path, texts, given.documents, 1))
                with service(path) as client:
                    settled(client)
            delay = given.delay / 1000
            for kind in (READ, *MODES, WRITE):
                control = f"{1000 * later(folder, kind, numbers, proxy, 0).seconds:.0f}"
                delays = (0.0, delay)
                starts = [first(bucket, kind, numbers[: given.starts], proxy, x) for x in delays]
                others = [later(bucket, kind, numbers, proxy, x) for x in delays]
                rows = [("first", starts), ("later", others)]
                if find("nginx") is not None:
                    costs = costs_with_cache(bucket, kind, filling, numbers, proxy, delay)
                    rows.append(("later, with the cache", costs))
                for name, (fast, slow) in rows:
                    turns = (slow.seconds - fast.seconds) / delays[1]
                    figures = (f"{fast.requests:.0f}", f"{fast.megabytes:.1f}", f"{turns:.0f}")
                    table.add_row(kind, name, control if name == "later" else "", *figures)
        finally:
            proxy.close()
            store.close()
    Console(highlight=False).print(table)


@contextmanager
def service(path: str) -> Iterator[httpx.Client]:
    """A client of a service on a store; the store of the tests needs time."""
    with (
        server.started(f"--index-path={path}", "--calibrate=0", "--bucket-timeout=60") as running,
        httpx.Client(base_url=running.url, timeout=600) as client,
    ):
        client.headers["x-request-timeout"] = "600"
        yield client


def costs_with_cache(
    path: str, kind: str, filling: list[int], numbers: list[int], proxy: FaultProxy, delay: float
) -> list[Cost]:
    """The costs of later requests without a delay and with one; each process asks for other ids."""
    third = len(filling) // 3
    with tempfile.TemporaryDirectory() as folder, caching(Path(folder), proxy.port) as url:
        os.environ["AWS_PROXY_URL"] = url
        later(path, kind, filling[: 2 * third], proxy, 0)
        costs = [
            later(path, kind, some, proxy, wait)
            for some, wait in ((numbers, 0.0), (filling[2 * third :], delay))
        ]
        del os.environ["AWS_PROXY_URL"]
    return costs


def first(path: str, kind: str, numbers: list[int], proxy: FaultProxy, delay: float) -> Cost:
    """The cost of the first request of a process."""
    found = []
    for number in track(numbers, f"{kind}, first"):
        with service(path) as client:
            proxy.delay = delay
            if kind != READ:
                ask(client, READ, number + 1)
            found.append(cost(client, kind, number, proxy))
            proxy.delay = 0
    return median(found)


def later(path: str, kind: str, numbers: list[int], proxy: FaultProxy, delay: float) -> Cost:
    """The cost of the requests of a process after the first ones."""
    with service(path) as client:
        proxy.delay = delay
        found = [cost(client, kind, number, proxy) for number in track(numbers, f"{kind}, later")]
        proxy.delay = 0
    return median(found[WARM_UP:])


def ask(client: httpx.Client, kind: str, number: int) -> None:
    """Send one request."""
    place = f"/indexes/{NAME}/documents"
    if kind == READ:
        call(client, "GET", f"{place}/{number}")
    elif kind == WRITE:
        text = f"A text that was written at {time.time()}."
        call(client, "POST", place, {"documents": [{"id": str(number), "text": text}]})
    else:
        call(client, "POST", "/similar", {"index": NAME, "id": str(number), "mode": kind})


def cost(client: httpx.Client, kind: str, number: int, proxy: FaultProxy) -> Cost:
    """What a request took."""
    requests, received = proxy.requests, proxy.received
    began = time.perf_counter()
    ask(client, kind, number)
    seconds = time.perf_counter() - began
    return Cost(seconds, proxy.requests - requests, (proxy.received - received) / 1e6)


def median(costs: Iterable[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(*np.median(np.array([*costs]), axis=0).tolist())


if __name__ == "__main__":
    main()
