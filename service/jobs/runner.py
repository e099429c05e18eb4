"""Runs the jobs of this process, one of each kind at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import structlog

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
        index: the name of the index that it changes.
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


class Runner:
    """The jobs that run in this process.

    Args:
        store: of the indexes; the table of jobs lies next to them.
        metrics: counts jobs.
    """

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._turns: dict[Kind, asyncio.Lock] = {"files": asyncio.Lock(), "map": asyncio.Lock()}
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[str, asyncio.Task[None] | None] = {}
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
        # the job outlives the request, its span and the entries of its log lines
        running = asyncio.create_task(self._run(task, added), name=task.kind, context=Context())
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)
        return await asyncio.shield(added)

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

    async def _run(self, task: Task, added: asyncio.Future[Job]) -> None:
        try:
            jobs = await self.jobs()
            job = await jobs.add(task.kind, task.index, task.owner, task.progress.counts())
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
        running = asyncio.Event()
        beats = asyncio.create_task(self._beat(jobs, job, task.progress, running))
        state: State = "failed"
        error = ""
        try:
            async with self._turns[task.kind]:
                running.set()
                await task.work()
            state = "succeeded"
        except asyncio.CancelledError:
            if self._closing:
                error = task.stopped
            else:
                state = "cancelled"
        except Exception as fault:  # noqa: BLE001 the job states it
            error = await self._said(fault)
        finally:
            beats.cancel()
            del self._open[job.id]
            task.ended()
            counts = task.progress.counts()
            self._metrics.jobs.labels(job.kind, state).inc()
            log.info("job_ended", job=job.id, kind=job.kind, state=state, **counts)
            await self._write_end(jobs, replace(_present(job, task.progress, state), error=error))

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


def _present(job: Job, progress: Progress, state: State) -> Job:
    """A job with its results so far."""
    return replace(job, state=state, progress=progress.counts(), details=progress.details())
