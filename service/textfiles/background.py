"""Jobs that embed files of texts. A job whose replica ends goes on at another."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from service.embedding.batching import clients
from service.errors import NotFoundError, UnavailableError
from service.index.replicas.silence import SILENT_SECONDS
from service.index.storage import bucket
from service.index.storage.layout import TEXTS
from service.index.store import Store
from service.jobs.runner import Runner, Task
from service.keys.rate import Bucket
from service.logs import outline
from service.textfiles.arrival import Arrival
from service.textfiles.embedding import Models, embed
from service.textfiles.progress import MOST_DEATHS, Options, Progress
from service.textfiles.room import Room

if TYPE_CHECKING:
    from service.jobs.table import Job, Jobs
    from service.textfiles.tables import Place, Tables

log = structlog.get_logger("docsplit.textfiles")

# how often a replica looks for jobs that ended with their replicas
LOOK_SECONDS = 5.0
# how often it removes tables that no job needs
SWEEP_SECONDS = 600.0
# a process that ends while a file arrives leaves tables without a job
STRAY_SECONDS = 86_400.0
# a job whose bundle no replica serves fails after so long
_UNSERVED_SECONDS = 86_400.0


class TextFiles:
    """The files of texts that this process receives, and the jobs that embed them.

    Args:
        store: of the indexes; the tables of texts and vectors lie next to them.
        runner: runs the jobs.
        models: the served bundles.
        capacity: bytes of the texts and vectors of all jobs.
        payer: what the work for the client of a name is charged to, if it is charged.
    """

    def __init__(
        self,
        store: Store,
        runner: Runner,
        models: Models,
        capacity: int,
        payer: Callable[[str], Bucket | None],
    ) -> None:
        self._store = store
        self._runner = runner
        self._models = models
        self._room = Room(capacity)
        self._payer = payer
        self._following: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def arriving(self, options: Options) -> AsyncIterator[Arrival]:
        """A file of the task's client that is about to arrive.

        What arrived is removed at the end of the block, unless ``begin`` has made a job of it.

        Raises:
            OverloadedError: this client, or all clients, have too many jobs.
        """
        owner = clients.current().name
        self._room.know(await (await self._runner.jobs()).all())
        tables = await self._tables()
        from service.textfiles.tables import Place

        place = Place(int(time.time()), uuid.uuid4().hex)
        arrival = Arrival(tables, self._room, owner, place, Progress(options, place.began))
        self._room.enter(owner)
        try:
            await tables.create(place)
            yield arrival
        finally:
            self._room.leave(owner, arrival.progress.bytes, begun=arrival.begun)
            if not arrival.begun:
                await self._drop(place)

    async def begin(self, arrival: Arrival) -> Job:
        """Queue the job of a file that has arrived; on return every replica sees it.

        Raises:
            EmptyError: the file has no text.
        """
        await arrival.end()
        # the job begins even if the client leaves now
        arrival.begun = True
        try:
            return await self._runner.begin(
                self._task(arrival.place.job, arrival.owner, arrival.progress)
            )
        except Exception:
            arrival.begun = False
            raise

    async def vectors(self, job: Job) -> AsyncIterator[bytes]:
        """The blocks of vectors of a job that has succeeded, one at a time.

        Raises:
            NotFoundError: they are gone.
        """
        found = None
        if job.holds(time.time()):
            blocks = Progress.of(job).blocks
            found = await (await self._tables()).vectors(_place(job), blocks)
        if found is None:
            raise NotFoundError("the vectors of this job are gone: they are kept for a day")
        return found

    async def remove(self, job: Job) -> None:
        """Cancel a job, or forget one that has ended; remove its texts and vectors."""
        if job.ended:
            await (await self._runner.jobs()).remove(job)
        else:
            await self._runner.cancel(job.id)
        await (await self._tables()).drop(_place(job))

    def follow(self) -> None:
        """From now on take over lost jobs, and remove what no job needs."""
        self._following = asyncio.create_task(self._follow(), name="follow files of texts")

    async def close(self) -> None:
        """Stop; the runner leaves the jobs to other replicas."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def take_over(self, silent: float = 0.0) -> None:
        """Go on with one job whose replica has ended.

        Args:
            silent: see ``Jobs.lost``.
        """
        jobs = await self._runner.jobs()
        for job in await jobs.lost("embed", silent):
            if self._runner.has(job.id):
                continue
            try:
                if await self._take_over(jobs, job):
                    return
            except Exception as error:  # noqa: BLE001 others may be sound
                log.warning("job_not_resumed", job=job.id, outline=outline(error))

    async def sweep(self) -> None:
        """Remove the tables that no job needs."""
        tables = await self._tables()
        # in this order: a job that begins in between is known
        places = await tables.places()
        now = time.time()
        known = {job.id: job for job in await (await self._runner.jobs()).all()}
        for place in places:
            job = known.get(place.job)
            needed = job.holds(now) if job is not None else now - place.began <= STRAY_SECONDS
            if not needed:
                await tables.drop(place)
                log.info("texts_removed", job=place.job)

    async def _follow(self) -> None:
        swept = 0.0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not _may_hold_texts(self._store.path):
                continue
            try:
                if self._runner.idle("embed"):
                    await self.take_over(SILENT_SECONDS)
                if time.monotonic() - swept > SWEEP_SECONDS:
                    await self.sweep()
                    swept = time.monotonic()
            except Exception as error:  # noqa: BLE001 the store may work again at the next look
                log.warning("lost_jobs_not_read", reason=str(error)[:300])

    async def _take_over(self, jobs: Jobs, job: Job) -> bool:
        """Whether this replica goes on with a lost job."""
        progress = Progress.of(job)
        served = progress.options.revision in self._models.revisions
        if not served and time.time() - job.heartbeat < _UNSERVED_SECONDS:
            return False
        error = None if served else "no replica serves its bundle any more"
        written = await (await self._tables()).find(_place(job))
        if written is None:
            error = "its texts are gone"
        else:
            if written.blocks > progress.written:
                progress.deaths = 0
            progress.written = written.blocks
            progress.deaths += job.state == "running"
            if progress.deaths > MOST_DEATHS:
                texts = f"texts {written.rows + 1} and following"
                error = f"{progress.deaths} replicas ended while they embedded {texts}"
        taken = await jobs.take_over(job, progress.details())
        if taken is None:
            return False
        log.info("job_resumed", job=job.id, blocks=progress.written, error=error)
        await self._runner.resume(taken, self._task(job.id, job.owner, progress, error))
        return True

    def _task(self, job_id: str, owner: str, progress: Progress, error: str | None = None) -> Task:
        """The work of a job, which fails at once if there is an error."""
        from service.textfiles.tables import Place

        place = Place(progress.began, job_id)

        async def work() -> None:
            try:
                if error is not None:
                    raise UnavailableError(f"{error}: send the file again")
                model = await self._models.model(progress.options.revision)
                tables = await self._tables()
                await embed(tables, place, progress, model, owner, self._payer)
            except Exception as fault:
                if bucket.unreachable(fault):
                    # the job goes on later
                    raise
                job = await (await self._runner.jobs()).get(job_id)
                if job is None or job.ended:
                    # another replica has removed the tables
                    raise asyncio.CancelledError from None
                await self._drop(place)
                raise

        return Task("embed", "", owner, progress, work, lambda: None, None, job_id)

    async def _drop(self, place: Place) -> None:
        try:
            await (await self._tables()).drop(place)
        except Exception as error:  # noqa: BLE001 a sweep removes them later
            log.warning("texts_not_removed", job=place.job, outline=outline(error))

    async def _tables(self) -> Tables:
        database = await self._store.database(TEXTS)
        from service.textfiles.tables import Tables

        return Tables(database)


def _place(job: Job) -> Place:
    from service.textfiles.tables import Place

    return Place(job.details["began"], job.id)


def _may_hold_texts(path: str) -> bool:
    return "://" in path or Path(path, TEXTS).exists()
