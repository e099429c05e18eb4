"""Runs the jobs of uploads in this process, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from service.embedding import charges
from service.embedding.background import BackgroundEmbedder
from service.embedding.batching import clients
from service.embedding.batching.clients import Client
from service.embedding.batching.threshold import overflow
from service.embedding.embedder import Embedded, Embedder
from service.errors import OverloadedError, ServiceError
from service.index.store import Store
from service.logs import outline
from service.metrics import Metrics
from service.uploads.spool import Spool, Upload
from service.uploads.texts import Texts

if TYPE_CHECKING:
    from service.keys.rate import Bucket
    from service.uploads.indexing import Progress
    from service.uploads.jobs import Job, Jobs, State

log = structlog.get_logger("docsplit.uploads")

# uploads that arrive or wait, and the job that runs
MOST_JOBS = 16
# share of the engine, relative to a client with requests
WEIGHT = 1 / 16
HEARTBEAT_SECONDS = 2.0
# a job that waits has no progress to write
WAITING_SECONDS = 20.0
STOPPED = "the service stopped: send the files again; what was indexed stays"


@dataclass(frozen=True, slots=True)
class Wish:
    """What to do with an upload.

    Attributes:
        index, uid: name of the index, and which index of that name it was.
        threshold: see ``Target``.
    """

    index: str
    uid: str
    threshold: float | None


class Uploads:
    """The uploads of this process, and the jobs that index them.

    Args:
        store: of the indexes.
        capacity: bytes of all uploads on disk.
        metrics: counts jobs and refused files.
    """

    def __init__(self, store: Store, capacity: int, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        # a folder of temporary files may lie in memory, the volume of the indexes does not
        folder = None if "://" in store.path else Path(store.path, "scratch")
        self.spool = Spool(folder, capacity)
        self.texts = Texts(folder)
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[str, asyncio.Task[None] | None] = {}
        self._places: Counter[Client] = Counter()
        self._table: Jobs | None = None
        self._closing = False
        self._seconds = 10.0
        metrics.upload_bytes.set_function(lambda: self.spool.total)

    async def open(self) -> Upload:
        """An empty upload of the task's client, with a place in the queue until it is closed.

        Raises:
            OverloadedError: too many uploads of this client, or of all, arrive or wait.
            UnavailableError: the disk fails.
        """
        client = clients.current()
        total = self._places.total()
        if overflow(MOST_JOBS, total, self._places[client], 1) > 0:
            raise OverloadedError(
                max(1.0, self._seconds),
                "overloaded: too many uploads, of this client or of all clients, arrive or wait to "
                "be read; try again",
            )
        self._places[client] += 1
        try:
            return await self.spool.open(client)
        except BaseException:
            self._leave(client)
            raise

    def close_upload(self, upload: Upload) -> None:
        """Remove the files of an upload, and give its place to others."""
        upload.close()
        self._leave(upload.client)

    async def jobs(self) -> Jobs:
        """The jobs of all replicas."""
        database = await self._store.database("leases")
        from service.uploads.jobs import Jobs

        if self._table is None:
            self._table = Jobs(database)
        return self._table

    async def begin(
        self,
        upload: Upload,
        wish: Wish,
        embedder: Embedder,
        prompt: str,
        count: Callable[[Embedded], None],
    ) -> Job:
        """Queue a job, which from now on owns the upload; on return every replica sees it.

        Args:
            prompt: text before every window.
            count: receives every batch of embedded documents.
        """
        client = Client(upload.client.name, WEIGHT)
        background = BackgroundEmbedder(embedder, prompt, count, client=client)
        added: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        run = self._run(upload, wish, background, charges.payer(), added)
        # the job outlives the request, its span and the entries of its log lines
        task = asyncio.create_task(run, name="upload", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(added)

    async def cancel(self, job_id: str) -> None:
        """Cancel a job here or at another replica, unless it has ended."""
        await (await self.jobs()).cancel(job_id)
        if (task := self._end(job_id)) is not None:
            await asyncio.wait([task])

    async def close(self) -> None:
        """End all jobs; what they have indexed stays."""
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.texts.close()

    async def _run(
        self,
        upload: Upload,
        wish: Wish,
        embedder: BackgroundEmbedder,
        payer: Bucket | None,
        added: asyncio.Future[Job],
    ) -> None:
        from service.uploads.indexing import Progress, Target, add

        progress = Progress(len(upload.names))
        try:
            jobs = await self.jobs()
            job = await jobs.add("files", wish.index, upload.client.name, counts(progress))
        except BaseException as error:
            self.close_upload(upload)
            if not isinstance(error, Exception):
                added.cancel()
                raise
            added.set_exception(error)
            # the client may have left
            added.exception()
            return
        added.set_result(job)
        target = Target(self._store, wish.index, wish.uid, embedder, wish.threshold)

        async def work() -> None:
            with charges.charging(payer):
                await add(upload, target, progress)

        await self._follow(jobs, job, upload, progress, work)

    async def _follow(
        self,
        jobs: Jobs,
        job: Job,
        upload: Upload,
        progress: Progress,
        work: Callable[[], Awaitable[None]],
    ) -> None:
        """Do the work of a job when its turn comes, and write how it goes on and ends."""
        self._open[job.id] = asyncio.current_task()
        running = asyncio.Event()
        beats = asyncio.create_task(self._beat(jobs, job, progress, running))
        state: State = "failed"
        error = ""
        try:
            async with self._turn:
                running.set()
                started = time.monotonic()
                await work()
                self._seconds += 0.3 * (time.monotonic() - started - self._seconds)
            state = "succeeded"
        except asyncio.CancelledError:
            if self._closing:
                error = STOPPED
            else:
                state = "cancelled"
        except Exception as fault:  # noqa: BLE001 the job tells it
            error = await self._said(fault)
        finally:
            beats.cancel()
            del self._open[job.id]
            self.close_upload(upload)
            self._ended(job, state, progress)
            await self._write_end(jobs, replace(_present(job, progress, state), error=error))

    async def _beat(self, jobs: Jobs, job: Job, progress: Progress, running: asyncio.Event) -> None:
        while True:
            state: State = "running" if running.is_set() else "queued"
            try:
                known = await jobs.beat(_present(job, progress, state))
            except Exception as error:  # noqa: BLE001 the store may work again at the next one
                log.warning("job_heartbeat_failed", job=job.id, reason=str(error)[:300])
                known = True
            if not known:
                self._end(job.id)
                return
            if running.is_set():
                await asyncio.sleep(HEARTBEAT_SECONDS)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(running.wait(), WAITING_SECONDS)

    async def _said(self, fault: Exception) -> str:
        """What a job says of the error that ended it."""
        if isinstance(fault, ServiceError) and fault.status != ServiceError.status:
            return fault.message
        if (known := await self._store.fault(fault)) is not None:
            return known.message
        log.error("job_failed", outline=outline(fault))
        return "internal error; see the log of the replica"

    def _ended(self, job: Job, state: State, progress: Progress) -> None:
        self._metrics.jobs.labels(job.kind, state).inc()
        for why, number in progress.refusals.items():
            self._metrics.files_refused.labels(why).inc(number)
        log.info("job_ended", job=job.id, kind=job.kind, state=state, **counts(progress))

    async def _write_end(self, jobs: Jobs, job: Job) -> None:
        try:
            await jobs.end(job)
        except Exception as error:  # noqa: BLE001 without heartbeats the job soon counts as failed
            log.warning("job_end_not_written", job=job.id, reason=str(error)[:300])

    def _end(self, job_id: str) -> asyncio.Task[None] | None:
        task = self._open.get(job_id)
        if task is not None:
            task.cancel()
        return task

    def _leave(self, client: Client) -> None:
        self._places[client] -= 1
        if not self._places[client]:
            del self._places[client]


def _present(job: Job, progress: Progress, state: State) -> Job:
    """A job with its results so far."""
    refused = [[one.id, one.reason] for one in progress.refused]
    return replace(job, state=state, progress=counts(progress), details={"refused": refused})


def counts(progress: Progress) -> dict[str, int]:
    """The numbers of a job's progress."""
    return {
        "files": progress.files,
        "done": progress.done,
        "failed": progress.failed,
        "written": progress.written,
        "unchanged": progress.unchanged,
        "refused": sum(progress.refusals.values()),
    }
