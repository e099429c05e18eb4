"""Runs the jobs of this process, one of each kind at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from service.embedding.batching.clients import Client, working_for
from service.embedding.tokenising import FairSemaphore
from service.errors import ServiceError
from service.index.store import Store
from service.logs import outline
from service.metrics import Metrics

if TYPE_CHECKING:
    from service.jobs.table import Job, Jobs, Kind, State

log = structlog.get_logger("docsplit.jobs")

HEARTBEAT_SECONDS = 2.0
# a job that waits has no progress to write
WAITING_SECONDS = 20.0


class Progress(Protocol):
    """What a job has done so far."""

    def counts(self) -> dict[str, int]:
        """Numbers, depending on the kind of the job."""
        ...

    def details(self) -> dict[str, Any]:
        """Further results, depending on the kind of the job; of bounded size."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """A job to run.

    Attributes:
        index: the name of the index that it changes, if it changes one.
        owner: name of the client that begins it.
        progress: the work changes it.
        work: the coroutine function that does it.
        ended: called once, also if the job never begins.
        stopped: the error of a job that ends because the service stops.
    """

    kind: Kind
    index: str
    owner: str
    progress: Progress
    work: Callable[[], Awaitable[None]]
    ended: Callable[[], None]
    stopped: str


class _Present:
    """A job of this process.

    Args:
        job: as the table has it.

    Attributes:
        running: set when its work begins.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.running = asyncio.Event()

    def at(self, progress: Progress, state: State) -> Job:
        """The job with its results so far."""
        counts, details = progress.counts(), progress.details()
        return replace(self.job, state=state, progress=counts, details=details)


class Runner:
    """The jobs that run in this process.

    Args:
        store: of the indexes; the table of jobs lies next to them.
        metrics: counts jobs.
    """

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        kinds: tuple[Kind, ...] = ("files", "map")
        # so that no client waits for all jobs of another
        self._turns = {kind: FairSemaphore(1) for kind in kinds}
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[str, asyncio.Task[None] | None] = {}
        # until their ends are written
        self._running: dict[str, tuple[_Present, Progress]] = {}
        self._table: Jobs | None = None
        self._closing = False

    async def jobs(self) -> Jobs:
        """The jobs of all replicas."""
        database = await self._store.database("leases")
        from service.jobs.table import Jobs

        if self._table is None:
            self._table = Jobs(database)
        return self._table

    async def begin(self, task: Task) -> Job:
        """Queue a job; on return every replica sees it."""
        added: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._start(task, self._run(task, added))
        return await asyncio.shield(added)

    def running(self, job_id: str) -> Job | None:
        """A job whose work has begun here, without a read of the table; None for any other.

        Clients ask often, and a read takes processor time from the job that they wait for.
        """
        if job_id not in self._running:
            return None
        present, progress = self._running[job_id]
        return present.at(progress, "running")

    async def cancel(self, job_id: str) -> None:
        """Cancel a job here or at another replica, unless it has ended."""
        await (await self.jobs()).cancel(job_id)
        if (task := self._end(job_id)) is not None:
            await asyncio.wait([task])

    async def close(self) -> None:
        """End all jobs; what they have done stays."""
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, task: Task, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # the job outlives the request, its span and the entries of its log lines
        running = asyncio.create_task(work, name=task.kind, context=Context())
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)
        return running

    async def _run(self, task: Task, added: asyncio.Future[Job]) -> None:
        try:
            jobs = await self.jobs()
            counts, details = task.progress.counts(), task.progress.details()
            job = await jobs.add(task.kind, task.index, task.owner, counts, details)
        except BaseException as error:
            task.ended()
            if not isinstance(error, Exception):
                added.cancel()
                raise
            added.set_exception(error)
            # the client may have left
            added.exception()
            return
        added.set_result(job)
        await self._follow(jobs, job, task)

    async def _follow(self, jobs: Jobs, job: Job, task: Task) -> None:
        """Do the work of a job when its turn comes, and write its progress and its end."""
        self._open[job.id] = asyncio.current_task()
        present = _Present(job)
        beats = asyncio.create_task(self._beat(jobs, present, task.progress))
        state: State = "failed"
        error = ""
        try:
            with working_for(Client(task.owner)):
                async with self._turns[task.kind].turn():
                    present.running.set()
                    self._running[job.id] = present, task.progress
                    await task.work()
            state = "succeeded"
        except asyncio.CancelledError:
            if not self._closing:
                state = "cancelled"
            else:
                error = task.stopped
        except Exception as fault:  # noqa: BLE001 the job states it
            error = await self._said(fault)
        finally:
            beats.cancel()
            del self._open[job.id]
            task.ended()
            last = replace(present.at(task.progress, state), error=error)
            log.info("job_ended", job=job.id, kind=job.kind, state=state, **last.progress)
            self._metrics.jobs.labels(job.kind, state).inc()
            try:
                await self._write_end(jobs, last)
            finally:
                self._running.pop(job.id, None)

    async def _beat(self, jobs: Jobs, present: _Present, progress: Progress) -> None:
        job, running = present.job, present.running
        while True:
            state: State = "running" if running.is_set() else "queued"
            beat = present.at(progress, state)
            try:
                known = await jobs.beat(beat)
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

    async def _write_end(self, jobs: Jobs, job: Job) -> None:
        writing = asyncio.ensure_future(jobs.end(job))
        try:
            while not writing.done():
                # the process may close now; without its end the job would count as failed
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([writing])
            writing.result()
        except Exception as error:  # noqa: BLE001 without heartbeats the job soon counts as failed
            log.warning("job_end_not_written", job=job.id, reason=str(error)[:300])

    def _end(self, job_id: str) -> asyncio.Task[None] | None:
        task = self._open.get(job_id)
        if task is not None:
            task.cancel()
        return task
