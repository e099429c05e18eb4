"""Runs the jobs that compute maps, each in a process of its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from service import child
from service.errors import NotFoundError, OverloadedError, UnavailableError
from service.index.store import Store
from service.jobs.runner import Attempt, Kind, Runner, Task
from service.metrics import Metrics

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from docsplit.heads.network import Scorer
    from features.maps.areas import Area, Areas
    from features.maps.current import Current, CurrentMaps
    from features.maps.labels import Labels, MapLabels
    from service.index.documents import Index
    from service.index.query.filters import Where
    from service.index.rows.keyed import Row
    from service.jobs.table import Job

log = structlog.get_logger("docsplit.mapping")

# that wait and run in this process
MOST_JOBS = 16
RETRY_SECONDS = 60.0
LOST = "its replica ended: start the map again"
STOPPED = "the service stopped: start the map again"
# the computation has one core; the service keeps the others
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LANCE_CPU_THREADS"), "1")
_FAILED = "the computation of the map ended early: its log line, or too little memory, says why"


@dataclass(slots=True)
class Progress:
    """How far the computation of a map is.

    Attributes:
        documents: of the index when the job began.
        step: what it does now.
        share: of that step, 0 to 1.
    """

    documents: int
    step: str = "waiting"
    share: float = 0.0

    def counts(self) -> dict[str, int]:
        """The number of documents."""
        return {"documents": self.documents}

    def details(self) -> dict[str, Any]:
        """The step."""
        return {"step": self.step, "share": self.share}


class Mapping:
    """The computations of maps in this process."""

    def __init__(self, store: Store, runner: Runner, metrics: Metrics) -> None:
        self._store = store
        self._runner = runner
        self._current: CurrentMaps | None = None
        self._labels: MapLabels | None = None
        self._areas: Areas | None = None
        self._beginning = asyncio.Lock()
        self._open = 0
        runner.register(
            Kind("map", lambda _, state: metrics.jobs.labels("map", state).inc(), LOST, STOPPED)
        )

    async def current(self, name: str, field: str | None = None) -> Current:
        """The documents of an index on its map, and the values of a field.

        Raises:
            NotFoundError: there is no index of that name, or it has no map.
            InvalidError: the index has no such field.
        """
        indexes = await self._store.indexes()
        index = await indexes.open(name)
        found = await self._maps().get(indexes.maps, index, field)
        if found is None:
            raise NotFoundError("the index has no map: POST /indexes/{name}/map computes it")
        return found

    async def labels(
        self, current: Current, places: NDArray[np.int64], training: str, network: Scorer
    ) -> Labels:
        """The labels of some documents of a map by a classifier; see ``MapLabels.get``."""
        from features.maps.labels import MapLabels

        self._labels = self._labels or MapLabels()
        return await self._labels.get(current, places, training, network)

    async def inside(self, index: Index, area: Area) -> Where:
        """The condition that a document is inside an area of the map of its index.

        Raises:
            ConflictError, InvalidError: see ``Areas.where``.
        """
        from features.maps.areas import Areas

        self._areas = self._areas or Areas(self._maps())
        return await self._areas.where((await self._store.indexes()).maps, index, area)

    def _maps(self) -> CurrentMaps:
        from features.maps.current import CurrentMaps

        self._current = self._current or CurrentMaps()
        return self._current

    async def begin(self, name: str, index: Index, owner: str) -> Job:
        """Queue the computation of a map; if one of this index is queued or runs, that one.

        Args:
            owner: name of the client.

        Raises:
            OverloadedError: too many maps wait.
        """
        async with self._beginning:
            if (job := await self._runner.unended("map", name)) is not None:
                return job
            if self._open >= MOST_JOBS:
                raise OverloadedError(
                    RETRY_SECONDS, "overloaded: too many maps wait to be computed; try again"
                )
            return await self._begin(name, index, owner)

    async def _begin(self, name: str, index: Index, owner: str) -> Job:
        progress = Progress(await index.count())

        async def work(attempt: Attempt) -> None:
            indexes = await self._store.indexes()
            # the job may have waited for long, and the process needs seconds to start
            (await indexes.open(name)).require(index.identity.uid)
            try:
                row = await _computed(self._store.path, index.table.name, progress)
            except UnavailableError:
                # the table of a deleted index cannot be read
                (await indexes.open(name)).require(index.identity.uid)
                raise
            progress.step, progress.share = "writing", 0.0
            (await indexes.open(name)).require(index.identity.uid)
            held = partial(indexes.maps.version, index.table.name)
            await attempt.store(held, partial(indexes.maps.put_over, row))

        def ended() -> None:
            self._open -= 1

        self._open += 1
        return await self._runner.begin(Task("map", name, owner, progress, work, ended))


async def _computed(path: str, table: str, progress: Progress) -> Row:
    """The map of a table, from a process that ends with this task.

    Raises:
        UnavailableError: the process failed.
    """
    try:
        started = await child.started("features.maps", _ENVIRONMENT)
        async with child.ending(started) as process:
            await process.send({"path": path, "table": table})
            while (said := await process.receive()) is not None:
                if "map" in said:
                    row: Row = said["map"]
                    blobs = {one: await process.receive_bytes(row[one]) for one in said["blobs"]}
                    return row | blobs
                if "error" in said:
                    log.error("map_failed", outline=said["error"])
                    break
                progress.step, progress.share = said["step"], said["share"]
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise UnavailableError(_FAILED) from error
    raise UnavailableError(_FAILED)
