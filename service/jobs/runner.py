"""Runs the jobs of this process, one of each kind at a time, and takes over those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import structlog

from service.embedding.batching.clients import Client, working_for
from service.embedding.tokenising import FairSemaphore
from service.errors import ConflictError, EngineFailedError, RequestError, ServiceError
from service.index.storage import bucket
from service.index.store import Store
from service.logs import outline

if TYPE_CHECKING:
    from service.jobs.table import Job, Jobs

log = structlog.get_logger("docsplit.jobs")

HEARTBEAT_SECONDS = 2.0
# a job that waits has no progress to write
WAITING_SECONDS = 20.0
# how often a replica looks for jobs that have lost their owners
LOOK_SECONDS = 5.0
# attempts after which a job fails: each one ended with its replica
MOST_ATTEMPTS = 3


State = Literal["queued", "running", "left", "succeeded", "failed", "cancelled"]


class Progress(Protocol):
    """What a job has done so far."""

    def counts(self) -> dict[str, int]:
        """Numbers, depending on the kind of the job."""
        ...

    def details(self) -> dict[str, Any]:
        """Further results, depending on the kind of the job; of bounded size."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of jobs.

    Attributes:
        ended: called with each job that ended here, and with how it ended: a final state, or
            ``left`` or ``lost`` for an attempt that another replica follows.
        lost: the error of a job whose replica ended, if no other can take it over.
        stopped: the error of a job that ends because the service stops, likewise.
        resume: makes a task of a lost job, after a read of what the job needs; None if another
            replica should take it over. A RequestError ends the job. Without this function no
            replica takes over jobs of this kind.
        single: a subject has one job of this kind at most, which stays until it is removed.
    """

    name: str
    ended: Callable[[Job, str], None]
    lost: str = ""
    stopped: str = ""
    resume: Callable[[Job], Awaitable[Task | None]] | None = None
    single: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """The work of a job.

    Attributes:
        kind: name of its kind.
        subject: the name of the index that it changes, or of the classifier.
        owner: name of the client that begins it.
        progress: the work changes it.
        work: the coroutine function that does it; its argument fences its effects.
        ended: called once, also if the job never begins.
    """

    kind: str
    subject: str
    owner: str
    progress: Progress
    work: Callable[[Attempt], Awaitable[None]]
    ended: Callable[[], None] = lambda: None


class Attempt:
    """An attempt at a job by this process.

    Args:
        jobs: the table.
        job: as the table has it.
        progress: of the work.

    Attributes:
        running: set when its work begins.
        storing: whether the work stores its result, and decides itself what a removed job means.
        ending: whether the work is over.
        task: in which it runs.
    """

    def __init__(self, jobs: Jobs, job: Job, progress: Progress) -> None:
        self._jobs = jobs
        self._progress = progress
        self.job = job
        self.running = asyncio.Event()
        self.storing = False
        self.ending = False
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """End the work, unless it is over."""
        if self.task is not None and not self.ending:
            self.task.cancel()

    def at(self, state: State) -> Job:
        """The job with its results so far."""
        counts, details = self._progress.counts(), self._progress.details()
        return replace(self.job, state=state, progress=counts, details=details)

    async def require(self) -> None:
        """Raise CancelledError if the job was cancelled, removed or taken over."""
        if not await self._jobs.holds(self.job):
            raise asyncio.CancelledError

    async def store(
        self,
        held: Callable[[], Awaitable[Any]],
        put: Callable[[Any], Awaitable[bool]],
        withdraw: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Store the result of the job and end it, unless another attempt owns it by now.

        What the result replaces is read before the look at the owner. So if the job is taken over
        after that look, and the next owner stores its result, this one's is not stored. The write
        decides: if the job is given up or cancelled after that look, it has succeeded yet. If
        another attempt follows by then, this one's result stays until that one replaces it, because
        the former result is gone.

        Args:
            held: reads what the result replaces; None if there is nothing.
            put: writes the result if that is still there; returns whether it was.
            withdraw: removes a result that replaced nothing, of a job that lost its owner during
                the write: what was removed with the job does not come back. None if results stay.

        Raises:
            CancelledError: see ``require``.
        """
        while True:
            former = await held()
            await self.require()
            # a heartbeat that finds the job ended is no reason to cancel this
            self.storing = True
            if await put(former):
                break
        if not await self._jobs.end(self.at("succeeded"), stored=True):
            if former is None and withdraw is not None:
                await withdraw()
            raise asyncio.CancelledError


class Runner:
    """The jobs that run in this process.

    Args:
        store: of the indexes; the table of jobs lies next to them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kinds: dict[str, Kind] = {}
        # so that no client waits for all jobs of another
        self._turns: dict[str, FairSemaphore] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._attempts: dict[str, Attempt] = {}
        self._following: asyncio.Task[None] | None = None
        self._table: Jobs | None = None
        self._opening = asyncio.Lock()
        self._closing = False

    def register(self, kind: Kind) -> None:
        """Let this process run, show and take over jobs of a kind."""
        self._kinds[kind.name] = kind
        self._turns[kind.name] = FairSemaphore(1)

    async def jobs(self) -> Jobs:
        """The jobs of all replicas."""
        databases = [await self._store.database(part) for part in ("leases", "heads")]
        from service.jobs.table import Jobs

        async with self._opening:
            if self._table is None:
                table = Jobs(*databases)
                await table.adopt()
                self._table = table
        return self._table

    async def listed(self) -> list[Job]:
        """All jobs of the kinds whose jobs have an id of their own, as they are now."""
        jobs = await self.jobs()
        found = await jobs.all([kind.name for kind in self._kinds.values() if not kind.single])
        return [self._present(jobs, job) for job in found]

    async def get(self, job_id: str) -> Job | None:
        """A job as it is now: it has failed if it lost its replica and no other can go on.

        A read of the table takes processor time from a job that its client asks for often. So one
        whose work has begun here is answered without.
        """
        attempt = self._attempts.get(job_id)
        if attempt is not None and attempt.running.is_set():
            return attempt.at("running")
        jobs = await self.jobs()
        job = await jobs.get(job_id)
        return None if job is None or job.kind not in self._kinds else self._present(jobs, job)

    async def unended(self, kind: str, subject: str) -> Job | None:
        """The newest open job of a kind for a subject; those without an owner are ended."""
        jobs = await self.jobs()
        for job in await jobs.all([kind], ["queued", "running"]):
            if job.subject == subject:
                if not jobs.lost(job):
                    return job
                await jobs.give_up(job, self._kinds[kind].lost)
        return None

    async def begin(self, task: Task) -> Job:
        """Queue a job; on return every replica sees it.

        Raises:
            ConflictError: its subject has a job of a kind of which it may have only one.
        """
        added: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._start(task.kind, self._run(task, added))
        return await asyncio.shield(added)

    def idle(self, kind: str) -> bool:
        """Whether no job of a kind runs or waits here."""
        return all(attempt.job.kind != kind for attempt in self._attempts.values())

    async def cancel(self, job_id: str) -> None:
        """Cancel a job here or at another replica, unless it has ended."""
        await (await self.jobs()).cancel(job_id)
        attempt = self._attempts.get(job_id)
        if attempt is not None and attempt.task is not None:
            attempt.cancel()
            await asyncio.wait([attempt.task])

    def follow(self) -> None:
        """From now on take over jobs whose replicas have ended, or end them."""
        self._following = self._start("follow jobs", self._follow())

    async def close(self) -> None:
        """End all jobs, or leave them to other replicas; what they have done stays."""
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _present(self, jobs: Jobs, job: Job) -> Job:
        kind = self._kinds[job.kind]
        if kind.resume is not None or not jobs.lost(job):
            return job
        return replace(job, state="failed", error=kind.lost)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # a job outlives the request, its span and the entries of its log lines
        running = asyncio.create_task(work, name=name, context=Context())
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)
        return running

    async def _run(self, task: Task, added: asyncio.Future[Job]) -> None:
        try:
            jobs = await self.jobs()
            job = await jobs.add(
                task.kind,
                task.subject,
                task.owner,
                task.progress.counts(),
                task.progress.details(),
                single=self._kinds[task.kind].single,
            )
            if job is None:
                raise ConflictError(f"another {task.kind} of that name has just begun")
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
        await self._attempt(jobs, job, task)

    async def _attempt(self, jobs: Jobs, job: Job, task: Task) -> None:
        """Do the work of a job when its turn comes, and write its progress and its end."""
        kind = self._kinds[job.kind]
        attempt = self._attempts[job.id] = Attempt(jobs, job, task.progress)
        attempt.task = asyncio.current_task()
        beats = asyncio.create_task(self._beat(jobs, attempt))
        state: State = "failed"
        error = ""
        try:
            with working_for(Client(task.owner)):
                async with self._turns[job.kind].turn():
                    attempt.running.set()
                    await task.work(attempt)
            state = "succeeded"
        except asyncio.CancelledError:
            if not self._closing:
                state = "cancelled"
            elif kind.resume is not None:
                state = "left"
            else:
                error = kind.stopped
        except Exception as fault:  # noqa: BLE001 the job states it
            if kind.resume is not None and bucket.unreachable(fault):
                state = "left"
                log.warning("job_interrupted", job=job.id, reason=str(fault)[:300])
            else:
                error = await self._said(fault)
        finally:
            beats.cancel()
            task.ended()
            last = replace(attempt.at(state), error=error)
            log.info("job_ended", job=job.id, kind=job.kind, state=state, **last.progress)
            kind.ended(last, state)
            attempt.ending = True
            try:
                await self._write_end(jobs, last)
            finally:
                if self._attempts.get(job.id) is attempt:
                    del self._attempts[job.id]

    async def _beat(self, jobs: Jobs, attempt: Attempt) -> None:
        job, running = attempt.job, attempt.running
        while True:
            try:
                known = await jobs.beat(attempt.at("running" if running.is_set() else "queued"))
            except Exception as error:  # noqa: BLE001 the store may work again at the next one
                log.warning("job_heartbeat_failed", job=job.id, reason=str(error)[:300])
                known = True
            if not known and not attempt.storing:
                attempt.cancel()
                return
            if running.is_set():
                await asyncio.sleep(HEARTBEAT_SECONDS)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(running.wait(), WAITING_SECONDS)

    async def _follow(self) -> None:
        path = self._store.path
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            # a service without indexes and classifiers never imports LanceDB
            parts = (Path(path, part) for part in ("leases", "heads"))
            if "://" in path or any(part.exists() for part in parts):
                try:
                    await self.look()
                except Exception as error:  # noqa: BLE001 the store may work again at the next one
                    log.warning("lost_jobs_not_read", reason=str(error)[:300])

    async def look(self, silent: float | None = None) -> None:
        """Take over a lost job of each kind that has none here; end those that no replica may take.

        Args:
            silent: see ``Jobs.lost``.
        """
        jobs = await self.jobs()
        for job in await jobs.abandoned([*self._kinds], silent):
            kind, died = self._kinds[job.kind], job.state != "left"
            if kind.resume is None:
                if await jobs.give_up(job, kind.lost):
                    kind.ended(job, "failed")
            elif died and job.attempt >= MOST_ATTEMPTS:
                if await jobs.give_up(job, f"{job.attempt} replicas ended during the job"):
                    kind.ended(job, "lost")
            elif self.idle(job.kind):
                await self._take(jobs, job, kind.resume, died=died)

    async def _take(
        self,
        jobs: Jobs,
        job: Job,
        resume: Callable[[Job], Awaitable[Task | None]],
        *,
        died: bool,
    ) -> None:
        ended = self._kinds[job.kind].ended
        try:
            task = await resume(job)
        except RequestError as error:
            # what it needs is gone
            if await jobs.give_up(job, error.message, key=""):
                ended(job, "failed")
            return
        if task is None or (taken := await jobs.take(job)) is None:
            return
        if died:
            ended(job, "lost")
        log.info("job_resumed", job=job.id, attempt=taken.attempt)
        self._start(job.kind, self._attempt(jobs, taken, task))
        # so that it counts at the next look at this process
        await asyncio.sleep(0)

    async def _said(self, fault: Exception) -> str:
        """What a job says of the error that ended it."""
        if isinstance(fault, EngineFailedError):
            return "the engine failed on a document"
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
                # the process may close now; without its end the job would count as lost
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([writing])
            writing.result()
        except Exception as error:  # noqa: BLE001 without heartbeats the job soon counts as lost
            log.warning("job_end_not_written", job=job.id, reason=str(error)[:300])
