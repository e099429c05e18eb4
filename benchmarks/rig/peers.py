"""Indexes over vectors by other engines: built once below a folder, searched from any thread."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

Vectors = NDArray[np.float32]

K = 10
# a filter that one row in so many passes
SHARE = 100


@dataclass
class Peer:
    """An engine with an index.

    Attributes:
        search: the ``K`` nearest rows to a unit vector, of all rows or of those that pass the
            filter, with ``ef`` candidates. Each thread has its own connection.
        build_seconds: 0 if the folder had the index.
    """

    name: str
    search: Callable[[Vectors, bool, int], list[int]]
    build_seconds: float


def topics(count: int) -> Vectors:
    """Unit vectors near 2,000 topics in a space of few dimensions, like embeddings, plus noise."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((2000, 24))
    basis = draw.standard_normal((24, 384))
    near = centres[draw.integers(len(centres), size=count)]
    near = near + 0.5 * draw.standard_normal(near.shape)
    found = near @ basis + 0.5 * draw.standard_normal((count, 384))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def installed(rows: Vectors, work: Path, console: Console) -> Iterator[Peer]:
    """The engines that are installed, each with an index; names the others.

    Args:
        rows: float32 ``[rows, dimensions]`` of unit length.
        work: folder of the indexes. A later call with the same rows uses them again.
        console: for messages.
    """
    work.mkdir(parents=True, exist_ok=True)
    for packages, make in ENGINES.items():
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            console.print(f"{', '.join(missing)} is not installed: {make.__name__} is left out")
            continue
        with console.status(f"building: {make.__name__}"):
            yield make(rows, work)


def faiss(rows: Vectors, work: Path) -> Peer:
    """HNSW with 8-bit codes. A filter is a selector of ids."""
    import faiss as library

    started = time.perf_counter()
    path = work / "faiss.index"
    if path.exists():
        index = library.read_index(str(path))
    else:
        index = library.IndexHNSWSQ(
            rows.shape[1], library.ScalarQuantizer.QT_8bit, 32, library.METRIC_INNER_PRODUCT
        )
        index.hnsw.efConstruction = 200
        index.train(rows[:100_000])
        index.add(rows)
        library.write_index(index, str(path))
    chosen = library.IDSelectorBatch(np.arange(0, len(rows), SHARE))

    def search(query: Vectors, filtered: bool, ef: int) -> list[int]:
        some = {"sel": chosen} if filtered else {}
        params = library.SearchParametersHNSW(efSearch=ef, **some)
        _, found = index.search(query[None], K, params=params)
        return [int(i) for i in found[0]]

    return Peer("faiss HNSW SQ8", search, time.perf_counter() - started)


def pgvector(rows: Vectors, work: Path) -> Peer:
    """PostgreSQL with an HNSW index. Filters scan it iteratively if the version supports it."""
    import pgserver
    import psycopg

    started = time.perf_counter()
    server = pgserver.get_server(work / "postgres", cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        [[built]] = connection.execute("SELECT to_regclass('built') IS NOT NULL").fetchall()
        if not built:
            _fill(connection, rows)
    own = threading.local()

    def search(query: Vectors, filtered: bool, ef: int) -> list[int]:
        if not hasattr(own, "connection"):
            own.connection = psycopg.connect(server.get_uri(), autocommit=True)
            own.ef = 0
            with suppress(psycopg.Error):
                own.connection.execute("SET hnsw.iterative_scan = strict_order")
        if own.ef != ef:
            own.connection.execute(f"SET hnsw.ef_search = {ef}")
            own.ef = ef
        where = "WHERE bucket = 0" if filtered else ""
        found = own.connection.execute(
            f"SELECT id FROM rows {where} ORDER BY v <#> %s::vector LIMIT {K}", (_text(query),)
        )
        return [row[0] for row in found]

    return Peer("pgvector HNSW", search, time.perf_counter() - started)


def _fill(connection: Any, rows: Vectors) -> None:
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    connection.execute("DROP TABLE IF EXISTS rows")
    width = rows.shape[1]
    connection.execute(f"CREATE TABLE rows (id int PRIMARY KEY, bucket int, v vector({width}))")
    with connection.cursor().copy("COPY rows FROM STDIN") as copy:
        for number, row in enumerate(rows):
            copy.write_row((number, number % SHARE, _text(row)))
    # a graph that does not fit is built many times more slowly
    connection.execute(f"SET maintenance_work_mem = '{1000 + 2 * rows.nbytes // 10**6}MB'")
    connection.execute("CREATE INDEX ON rows USING hnsw (v vector_ip_ops)")
    connection.execute("CREATE INDEX ON rows (bucket)")
    connection.execute("ANALYZE rows")
    connection.execute("CREATE TABLE built ()")


def _text(row: Vectors) -> str:
    return "[" + ",".join(f"{value:.7g}" for value in row.tolist()) + "]"


ENGINES: dict[tuple[str, ...], Callable[[Vectors, Path], Peer]] = {
    ("faiss",): faiss,
    ("pgserver", "psycopg"): pgvector,
}
