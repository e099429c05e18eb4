"""How long does a search among many documents and windows take, in each mode?

    python -m benchmarks.index.search_modes documents.jsonl --documents 100000 --windows 10

Each stored document has the first half of one text of the file and the second half of another, so a
small file makes many documents. Vectors are random: topics in a space of few dimensions, like
embeddings, plus noise, and more noise for windows. The queries are stored documents by their ids,
and one window of them for passages, so a search embeds nothing. Each search is a request over HTTP.
The modes take turns query by query. ``--keep`` names a folder for the index, which a later run
searches again.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.rig import documents, server
from benchmarks.rig.peers import topics
from benchmarks.rig.server import call
from docsplit.bundles import format as bundle
from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.windowing.pooling import normalise
from service.index.indexes import Indexes, Model, connect
from service.index.maintenance import optimize
from service.index.rows.records import Encoding, Record

MODES = ("cosine", "words", "hybrid")
ROUTES = ("/similar", "/passages")
NAME = "documents"
COMMIT = 4096
WARM_UP = 20
PATIENCE = 1800


def main() -> None:
    """Build, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--windows", type=int, default=10, help="windows of each document")
    parser.add_argument("--texts", type=int, default=5000, help="texts to read from the file")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--keep", type=Path, help="folder of the index; default: a temporary one")
    given = parser.parse_args()
    texts = documents.read(given.source, given.texts)
    with tempfile.TemporaryDirectory() as work:
        folder = given.keep or Path(work)
        if not (folder / "indexes").is_dir():
            asyncio.run(build(folder, texts, given.documents, given.windows))
        with (
            server.started(f"--index-path={folder}") as service,
            httpx.Client(base_url=service.url, timeout=600) as client,
        ):
            held = settled(client)
            seconds = searched(client, held, given.queries)
            memory = service.peak_rss_mb()
    words = np.mean([len(text.split()) for text in texts])
    title = f"{held:,} documents of {words:,.0f} words, {given.queries} queries"
    table = Table("route", "mode", "p50 ms", "p90 ms", "p99 ms", title=title)
    for (route, mode), values in seconds.items():
        table.add_row(
            route, mode, *(f"{1000 * q:.1f}" for q in np.quantile(values, [0.5, 0.9, 0.99]))
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"largest resident memory of the service: {memory:,.0f} MB")


async def build(folder: Path | str, texts: list[str], count: int, windows: int) -> None:
    """Write the documents and build their search indexes."""
    manifest = bundle.load(DEFAULT_BUNDLE, verify=False).manifest
    vectors = topics(count)
    draw = np.random.default_rng(0)
    databases = [await connect(f"{folder}/{part}") for part in ("indexes", "leases")]
    model = Model(manifest.name, manifest.revision, vectors.shape[1])
    made = Indexes(databases[0], databases[1], model)
    await made.create(NAME, {})
    index = await made.open(NAME)
    for begin in track(range(0, count, COMMIT), "documents"):
        records = []
        for number in range(begin, min(begin + COMMIT, count)):
            one, two = (texts[i] for i in draw.integers(len(texts), size=2))
            text = one[: len(one) // 2] + two[len(two) // 2 :]
            noise = draw.standard_normal((windows, vectors.shape[1])) / vectors.shape[1] ** 0.5
            own = normalise((vectors[number] + 0.5 * noise).astype(np.float32))
            ends = np.linspace(0, len(text), windows + 1)[1:].astype(int).tolist()
            encoding = Encoding(vectors[number], own, ends)
            records.append(
                Record(str(number), text, title=None, metadata={}, links=[], encoding=encoding)
            )
        await index.put(records)
    await optimize(index.table)


def settled(client: httpx.Client) -> int:
    """Wait until the service has counted words and fitted its profile; the number of documents."""
    call(client, "POST", "/similar", {"index": NAME, "id": "0", "mode": "hybrid"})
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = call(client, "GET", f"/indexes/{NAME}")
        if found["adaptation"] is not None:
            return int(found["documents"])
        time.sleep(1)
    raise SystemExit(f"no profile after {PATIENCE} s")


def searched(client: httpx.Client, count: int, queries: int) -> dict[tuple[str, str], list[float]]:
    """Seconds of each search by route and mode."""
    seconds: dict[tuple[str, str], list[float]] = {
        (route, mode): [] for route in ROUTES for mode in MODES
    }
    draw = np.random.default_rng(1).integers(count, size=WARM_UP + queries)
    for turn, number in enumerate(track(draw.tolist(), "queries")):
        text = call(client, "GET", f"/indexes/{NAME}/documents/{number}")["text"]
        part = {"start": len(text) // 2, "end": len(text) // 2 + 200}
        for (route, mode), values in seconds.items():
            body: dict[str, Any] = {"index": NAME, "id": str(number), "mode": mode, "top_k": 10}
            body |= part if route == "/passages" else {}
            started = time.perf_counter()
            call(client, "POST", route, body)
            if turn >= WARM_UP:
                values.append(time.perf_counter() - started)
    return seconds


if __name__ == "__main__":
    main()
