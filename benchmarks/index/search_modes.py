"""How long does a search among many documents take, by cosine, by words and by both?

    python -m benchmarks.index.search_modes documents.jsonl --documents 100000

Each stored document has the first half of one text of the file and the second half of another, so a
small file makes many documents. Vectors are random: topics in a space of few dimensions, like
embeddings, plus noise. The queries are stored documents, by their ids. The modes take turns query
by query. A search does what ``POST /similar`` does between its body and its answer.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.index.vector_search import data
from benchmarks.rig import documents
from service.index import indexes
from service.index.maintenance import optimize
from service.index.query import search
from service.index.rows.record import Encoding, Record

MODES = {"cosine": search.cosine, "words": search.words, "hybrid": search.hybrid}
TOP_K = 10
COMMIT = 4096
WARM_UP = 20


def main() -> None:
    """Build, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--texts", type=int, default=5000, help="texts to read from the file")
    parser.add_argument("--queries", type=int, default=500)
    given = parser.parse_args()
    texts = documents.read(given.source, given.texts)
    with tempfile.TemporaryDirectory() as work:
        seconds, words = asyncio.run(measure(Path(work), texts, given.documents, given.queries))
    title = f"{given.documents:,} documents of {words:,.0f} words, {given.queries} queries"
    table = Table("mode", "p50 ms", "p99 ms", title=title)
    for mode, values in seconds.items():
        p50, p99 = np.quantile(values, [0.5, 0.99]) * 1000
        table.add_row(mode, f"{p50:.1f}", f"{p99:.1f}")
    Console().print(table)


async def measure(
    work: Path, texts: list[str], count: int, queries: int
) -> tuple[dict[str, list[float]], float]:
    """Seconds of each search by mode, and the mean number of words of a document."""
    vectors, _ = data(None, count, 1)
    draw = np.random.default_rng(0)
    databases = [await indexes.connect(str(work / part)) for part in ("lance", "leases")]
    model = indexes.Model("benchmark", "0" * 64, vectors.shape[1])
    made = indexes.Indexes(databases[0], databases[1], model)
    await made.create("documents", {})
    index = await made.open("documents")
    words = 0
    for begin in track(range(0, count, COMMIT), "documents"):
        records = []
        for number in range(begin, min(begin + COMMIT, count)):
            one, two = (texts[i] for i in draw.integers(len(texts), size=2))
            text = one[: len(one) // 2] + two[len(two) // 2 :]
            words += len(text.split())
            vector = vectors[number]
            encoding = Encoding(vector, vector[None], [len(text)])
            records.append(
                Record(str(number), text, title=None, metadata={}, links=[], encoding=encoding)
            )
        await index.put(records)
    await optimize(index.table)
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    for turn, number in enumerate(track(draw.integers(count, size=WARM_UP + queries), "queries")):
        for mode, run in MODES.items():
            started = time.perf_counter()
            opened = await made.open("documents")
            await run(opened, await search.stored(opened, str(number)), TOP_K, None)
            if turn >= WARM_UP:
                seconds[mode].append(time.perf_counter() - started)
    return seconds, words / count


if __name__ == "__main__":
    main()
