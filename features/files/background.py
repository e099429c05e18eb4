"""Queues the jobs that index uploads."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from features.files.spool import Spool, Upload
from features.files.texts import Texts
from service.embedding import charges
from service.embedding.background import BackgroundEmbedder
from service.embedding.batching import clients
from service.embedding.batching.clients import Client, Quota
from service.embedding.embedder import Embedded, Embedder
from service.errors import OverloadedError
from service.index.store import Store
from service.jobs.runner import Attempt, Kind, Runner, Task
from service.metrics import Metrics

if TYPE_CHECKING:
    from service.index.found_links import Report
    from service.jobs.table import Job

# uploads that arrive or wait, and the job that runs
MOST_JOBS = 16
# share of the engine, relative to a client with requests
WEIGHT = 1 / 16
LOST = "its replica ended: send the files again; what was indexed stays"
STOPPED = "the service stopped: send the files again; what was indexed stays"


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """What to do with an upload.

    Attributes:
        index, uid, generation, threshold, mark: see ``Target``.
        find: finds the links in the texts of the index when all files are indexed.
    """

    index: str
    uid: str
    generation: str
    threshold: float | None
    mark: bool = False
    find: Callable[[], Awaitable[Report]] | None = None


class Uploads:
    """The uploads of this process, and the jobs that index them.

    Args:
        capacity: bytes of all uploads on disk.
        ocr: languages of the text in scans.
    """

    def __init__(
        self, store: Store, runner: Runner, capacity: int, metrics: Metrics, ocr: str = "auto"
    ) -> None:
        self._store = store
        self._ocr = ocr
        self._runner = runner
        self._metrics = metrics
        # a folder of temporary files may lie in memory, the volume of the indexes does not
        folder = None if "://" in store.path else Path(store.path, "scratch")
        self.spool = Spool(folder, capacity)
        self.texts = Texts(folder, ocr)
        self._places = Quota(MOST_JOBS)
        self._seconds = 10.0
        runner.register(
            Kind("files", lambda _, state: metrics.jobs.labels("files", state).inc(), LOST, STOPPED)
        )
        metrics.upload_bytes.set_function(lambda: self.spool.total)

    async def open(self, *, anywhere: bool = False) -> Upload:
        """An empty upload of the task's client, with a place in the queue until it is closed.

        Args:
            anywhere: if the volume of the indexes fails, it may lie elsewhere.

        Raises:
            OverloadedError: too many uploads of this client, or of all, arrive or wait.
            UnavailableError: the disk fails.
        """
        client = clients.current()
        if self._places.overflow(client, 1) > 0:
            raise OverloadedError(
                max(1.0, self._seconds),
                "overloaded: too many uploads of this client, or of all clients, are arriving or "
                "wait for a reader; try again",
            )
        self._places.add(client, 1)
        try:
            return await self.spool.open(client, anywhere=anywhere)
        except BaseException:
            self._places.add(client, -1)
            raise

    def close_upload(self, upload: Upload) -> None:
        """Remove the files of an upload, and give its place to others."""
        upload.close()
        self._places.add(upload.client, -1)

    async def begin(
        self,
        upload: Upload,
        options: UploadOptions,
        embedder: Embedder,
        prompt: str,
        count: Callable[[Embedded], None],
    ) -> Job:
        """Queue a job, which from now on owns the upload; on return every replica sees it.

        Args:
            prompt: text before every window.
            count: receives every batch of embedded documents.
        """
        from features.files.indexing import Target, add
        from features.files.progress import Progress

        client = Client(upload.client.name, WEIGHT)
        background = BackgroundEmbedder(embedder, prompt, count, client=client)
        target = Target(
            self._store,
            options.index,
            options.uid,
            options.generation,
            background,
            options.threshold,
            options.mark,
            self._ocr,
        )
        progress = Progress(len(upload.names))
        payer = charges.payer()

        async def work(attempt: Attempt) -> None:
            started = time.monotonic()
            with charges.charging(payer):
                await add(upload, target, progress, attempt.require)
            if options.find is not None:
                await attempt.require()
                progress.links = (await options.find()).links
            self._seconds += 0.3 * (time.monotonic() - started - self._seconds)

        def ended() -> None:
            self.close_upload(upload)
            for why, number in progress.refusals.items():
                self._metrics.files_refused.labels(why).inc(number)

        name = upload.client.name
        return await self._runner.begin(Task("files", options.index, name, progress, work, ended))
