"""How long does a search take if the index is in a bucket, with a cold and a warm cache?

    python -m benchmarks.index.bucket_latency documents.jsonl --documents 20000 --latency 15

The store is the S3 server of the tests (moto's, one request at a time), behind a proxy that delays
each answer, so the figures show how many answers a search waits for, not the speed of any store.
The documents are those of ``benchmarks.index.search_modes``. Cold is the first search of a service
that has answered one request to the index by id, in each mode by a new process; warm are the
searches after it. A folder with the same documents is the control.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.index.search_modes import MODES, NAME, build, settled
from benchmarks.rig import documents, server
from benchmarks.rig.server import call
from tests.fault_proxy import FaultProxy
from tests.s3_server import BUCKET, S3Server, variables

# searches before the warm ones count
WARM_UP = 20


def main() -> None:
    """Build, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--texts", type=int, default=5000, help="texts to read from the file")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--starts", type=int, default=5, help="cold searches of each mode")
    parser.add_argument("--latency", type=float, default=15, help="delay of an answer, ms")
    given = parser.parse_args()
    texts = documents.read(given.source, given.texts)
    table = Table("store", "mode", "cold p50 ms", "warm p50 ms", "warm p90 ms", "warm p99 ms")
    with tempfile.TemporaryDirectory() as work:
        store = S3Server(Path(work, "log"))
        proxy = FaultProxy(store.port)
        os.environ.update(variables(proxy.port))
        try:
            for name, path in (("folder", f"{work}/index"), ("bucket", f"s3://{BUCKET}/index")):
                proxy.delay = 0
                asyncio.run(build(path, texts, given.documents, 1))
                with started(path) as service, httpx.Client(base_url=service.url) as client:
                    client.timeout = httpx.Timeout(600)
                    settled(client)
                proxy.delay = given.latency / 1000
                for mode in MODES:
                    cold, warm = measured(name, path, mode, given)
                    shown = [np.median(cold), *np.quantile(warm, [0.5, 0.9, 0.99])]
                    table.add_row(name, mode, *(f"{1000 * seconds:.1f}" for seconds in shown))
        finally:
            proxy.close()
            store.close()
    Console(highlight=False).print(table)


def started(path: str):  # type: ignore[no-untyped-def]  # a context manager of a generator
    """A service on a store."""
    return server.started(f"--index-path={path}", "--calibrate=0", "--bucket-timeout=30")


def measured(
    store: str, path: str, mode: str, given: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """Seconds of cold and of warm searches."""
    cold: list[float] = []
    warm: list[float] = []
    ids = np.random.default_rng(1).integers(given.documents, size=WARM_UP + given.queries)
    for start in track(range(given.starts), f"{store}, {mode}"):
        with started(path) as service, httpx.Client(base_url=service.url, timeout=600) as client:
            call(client, "GET", f"/indexes/{NAME}/documents/0")
            cold.append(searched(client, int(ids[start]), mode))
            if start == given.starts - 1:
                warm = [searched(client, number, mode) for number in ids.tolist()]
    return cold, warm[WARM_UP:]


def searched(client: httpx.Client, number: int, mode: str) -> float:
    """Seconds of one search for documents like a stored one."""
    began = time.perf_counter()
    call(client, "POST", "/similar", {"index": NAME, "id": str(number), "mode": mode, "top_k": 10})
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
