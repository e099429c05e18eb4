"""The sides of ``benchmarks.index.throughput``: each answers all queries with some clients."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.index.size.building import FIELDS, NAME
from benchmarks.rig import server
from benchmarks.rig.client import Client, Load
from benchmarks.rig.peers import K, Peer
from benchmarks.rig.server import Service
from service.index.indexes import Indexes
from service.index.query import search
from service.index.query.filters import Condition, Where, compile_filter
from service.index.query.reading import Query

FILTERED = "1 %"
FILTER = {"field": "bucket", "eq": 0}
# body of the request, without index and id
MODES: dict[str, dict[str, Any]] = {
    "cosine": {"mode": "cosine"},
    FILTERED: {"mode": "cosine", "filter": FILTER},
    "words": {"mode": "words"},
    "hybrid": {"mode": "hybrid"},
}
EFS = (20, 40, 60, 80, 100, 150, 200, 300, 400, 600, 1000)
# of all turns, because connections belong to threads
_THREADS = ThreadPoolExecutor(64)

# seconds from the first query to the last answer, and of each query
Taken = tuple[float, list[float]]


@dataclass(frozen=True)
class Queries:
    """Stored documents as queries.

    Attributes:
        names: their ids.
        texts: with vectors, as a request has them after embedding.
        truth: the ``K`` nearest rows of each, themselves among them, by mode.
    """

    names: Sequence[str]
    texts: Sequence[Query]
    truth: dict[str, list[set[int]]]

    @classmethod
    async def read(cls, indexes: Indexes, rows: Sequence[int], truth: NDArray[np.int64]) -> Queries:
        """The documents of some rows, with the result of ``benchmarks.index.size.exact``."""
        index = await indexes.open(NAME)
        names = [str(row) for row in rows]
        stored = [await search.stored(index, name) for name in names]
        texts = [Query(one.vector, one.text) for one in stored]
        sets = [[set(row) for row in part] for part in truth.tolist()]
        return cls(names, texts, dict(zip(("cosine", FILTERED), sets, strict=True)))

    @property
    def modes(self) -> list[str]:
        """Modes that make sense; ``benchmarks.index.size`` gives all documents the same text."""
        worded = len({query.text for query in self.texts}) > 1
        return list(MODES) if worded else ["cosine", FILTERED]

    def recall(self, mode: str, found: Sequence[Sequence[int]]) -> float | None:
        """The mean share of the truth in the answers; None if a mode has no truth."""
        if mode not in self.truth:
            return None
        pairs = zip(self.truth[mode], found, strict=True)
        return sum(len(right & set(row)) for right, row in pairs) / (K * len(self.names))


class Side(Protocol):
    """One way to search in one mode."""

    name: str
    mode: str

    @property
    def recall(self) -> float | None:
        """Of the last answers."""

    def send(self, queries: Queries, clients: int) -> Taken:
        """Answer all queries; each client sends the next one when its last one is answered."""


class InProcess:
    """This service's code in this process."""

    def __init__(self, mode: str, indexes: Indexes, runner: asyncio.Runner) -> None:
        self.name, self.mode = "in process", mode
        self.recall: float | None = None
        self._indexes = indexes
        self._runner = runner
        self._where: Where | None = None
        if mode == FILTERED:
            self._where = compile_filter(Condition.model_validate(FILTER), FIELDS)

    def send(self, queries: Queries, clients: int) -> Taken:
        """As ``Side.send``."""
        run = {"words": search.words, "hybrid": search.hybrid}.get(self.mode, search.cosine)
        found: list[list[int]] = [[] for _ in queries.names]

        async def one(place: int) -> None:
            index = await self._indexes.open(NAME)
            hits = await run(index, queries.texts[place], K, self._where)
            found[place] = [int(hit.id) for hit in hits]

        taken = self._runner.run(_tasks(one, len(found), clients))
        self.recall = queries.recall(self.mode, found)
        return taken


async def _tasks(one: Callable[[int], Awaitable[None]], count: int, clients: int) -> Taken:
    places = iter(range(count))
    seconds = []

    async def client() -> None:
        for place in places:
            began = time.perf_counter()
            await one(place)
            seconds.append(time.perf_counter() - began)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return time.perf_counter() - started, seconds


class OverHttp:
    """This service, asked by another process."""

    recall = None

    def __init__(self, mode: str, service: Service, client: Client) -> None:
        self.name, self.mode = "over HTTP", mode
        self._service = service
        self._client = client

    def send(self, queries: Queries, clients: int) -> Taken:
        """As ``Side.send``; the answers leave out the query's document."""
        body = {"index": NAME, "top_k": K, "adapt": False, **MODES[self.mode]}
        bodies = [json.dumps(body | {"id": name}).encode() for name in queries.names]
        answers = self._client.send(Load(f"{self._service.url}/similar", bodies, clients))
        failed = {answer.status for answer in answers} - {200}
        if failed:
            raise RuntimeError(f"the service answered {failed}")
        first = min(answer.began for answer in answers)
        last = max(answer.began + answer.seconds for answer in answers)
        return last - first, [answer.seconds for answer in answers]


class Engine:
    """Another engine, with the least ``ef`` that reaches a recall, or the largest.

    Attributes:
        name: of the engine, with its ``ef``.
    """

    def __init__(self, mode: str, peer: Peer, queries: Queries, least: float) -> None:
        self.mode = mode
        self.recall = 0.0
        self._peer = peer
        for ef in EFS:
            self.name, self._ef = f"{peer.name}, ef {ef}", ef
            self.send(queries, 1)
            if self.recall >= least:
                break

    def send(self, queries: Queries, clients: int) -> Taken:
        """As ``Side.send``."""
        found: list[list[int]] = [[] for _ in queries.names]
        places = iter(range(len(found)))
        barrier = threading.Barrier(clients + 1)

        def client() -> list[float]:
            self._search(queries, 0)  # connects
            barrier.wait()
            seconds = []
            for place in places:
                began = time.perf_counter()
                found[place] = self._search(queries, place)
                seconds.append(time.perf_counter() - began)
            return seconds

        futures = [_THREADS.submit(client) for _ in range(clients)]
        barrier.wait()
        started = time.perf_counter()
        seconds = [one for future in futures for one in future.result()]
        whole = time.perf_counter() - started
        self.recall = queries.recall(self.mode, found) or 0.0
        return whole, seconds

    def _search(self, queries: Queries, place: int) -> list[int]:
        return self._peer.search(queries.texts[place].vector, self.mode == FILTERED, self._ef)


def started(folder: Path, model: tuple[str, str]) -> AbstractContextManager[Service]:
    """The service for an index, whatever bundle embedded it; ``model`` is name and revision."""
    program = "import sys; from benchmarks.rig.stored_bundle import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "--port={port}", "--drain-seconds=0"]
    environment = dict(zip(("BUNDLE", "REVISION"), model, strict=True))
    return server.launched([*command, f"--index-path={folder}"], "/readyz", env=environment)
