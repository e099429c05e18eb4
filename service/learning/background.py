"""Trains classifiers in the background, one at a time in each process."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import structlog

from docsplit.heads.examples import Examples
from docsplit.windowing.pooling import Vectors, normalise
from service import executors
from service.embedding.background import BackgroundEmbedder
from service.embedding.embedder import UnusableInputError
from service.errors import (
    EngineFailedError,
    InvalidError,
    NotFoundError,
    OverloadedError,
    StoreError,
    UnavailableError,
)
from service.index.leases import SILENT_SECONDS
from service.index.storage import bucket
from service.learning.stored import HeadStore
from service.logs import outline
from service.metrics import Metrics

if TYPE_CHECKING:
    from docsplit.heads.network import Learnt
    from service.learning.jobs import Job, Jobs, Stage

log = structlog.get_logger("docsplit")

HEARTBEAT_SECONDS = 3.0
# how often a replica checks for trainings that ended with their replicas
LOOK_SECONDS = 5.0
# of the vectors of trainings that wait for their turn
MOST_WAITING_BYTES = 64 * 2**20
_RETRY_SECONDS = 10.0
_GONE = "its examples are gone"


@dataclass(frozen=True, slots=True)
class Teacher:
    """A loaded bundle, whose vectors train classifiers.

    Attributes:
        revision: of the bundle.
        embedder: embeds examples.
    """

    revision: str
    embedder: BackgroundEmbedder


class Teachers(Protocol):
    """The served bundles by name; None names the default one."""

    def serves(self, name: str | None, /) -> bool:
        """Whether there is a bundle of that name."""

    async def teacher(self, name: str | None, /) -> Teacher:
        """The bundle of that name; loads it.

        Raises:
            NotFoundError: there is none.
            UnavailableError: it cannot be loaded.
        """


@dataclass(slots=True)
class _Progress:
    stage: Stage = "waiting"
    done: int = 0
    storing: bool = False


class Background:
    """The trainings that run in this process.

    Args:
        store: of jobs and classifiers.
        teachers: the served bundles.
        metrics: counts the results of trainings.
    """

    def __init__(self, store: HeadStore, teachers: Teachers, metrics: Metrics) -> None:
        self._store = store
        self._teachers = teachers
        self._metrics = metrics
        self._turn = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # bytes of their vectors, by job
        self._waiting: dict[str, int] = {}
        self._following: asyncio.Task[None] | None = None

    async def start(
        self, name: str, examples: Examples, vectors: Sequence[Vectors | None] | None
    ) -> Job:
        """Begin a training; on return its examples are durable and every replica sees it.

        Args:
            name: of the classifier; its former head serves until this training is done.
            vectors: of the examples, as far as they are known.

        Raises:
            ConflictError: a training is running, here or at another replica.
            OverloadedError: the vectors of waiting trainings take too much memory.
        """
        waiting = sum(self._waiting.values())
        if waiting and waiting + _size(vectors) > MOST_WAITING_BYTES:
            raise OverloadedError(
                _RETRY_SECONDS, "overloaded: many trainings wait for their turn; try again"
            )
        jobs = await self._store.jobs()
        job = await jobs.claim(name, examples)
        await self.cancel(name)
        idle = all(task.done() for task in self._tasks.values())
        # a training that waits reads its texts at its turn
        self._begin(jobs, job, examples if idle else None, vectors)
        return job

    def follow(self) -> None:
        """From now on take over trainings whose replicas have ended."""
        self._following = asyncio.create_task(self._follow(), name="follow trainings")

    async def cancel(self, name: str) -> None:
        """End the training of a classifier, if it runs here; its examples stay."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """End all trainings; other replicas take them over."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        for name in list(self._tasks):
            await self.cancel(name)

    def _begin(
        self,
        jobs: Jobs,
        job: Job,
        examples: Examples | None,
        vectors: Sequence[Vectors | None] | None,
    ) -> None:
        self._waiting[job.uid] = _size(vectors)
        run = self._run(jobs, job, examples, vectors)
        task = asyncio.create_task(run, name=f"train {job.name}")
        # a task that is cancelled before it starts runs no part of ``_run``
        task.add_done_callback(lambda _: self._waiting.pop(job.uid, None))
        self._tasks[job.name] = task

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            idle = all(task.done() for task in self._tasks.values())
            if not idle or not _may_hold_jobs(self._store.indexes.path):
                continue
            try:
                await self._take_over(await self._store.jobs(), SILENT_SECONDS)
            except Exception as error:  # noqa: BLE001 the store may work again at the next check
                log.warning("lost_trainings_not_read", reason=str(error)[:300])

    async def _take_over(self, jobs: Jobs, silent: float = 0.0) -> None:
        """Take over one lost training; fail those that have ended too many replicas.

        Args:
            silent: see ``Jobs.lost``.
        """
        from service.learning.jobs import MOST_ATTEMPTS

        for job in await jobs.lost(silent):
            died = job.state == "running"
            if died and job.attempt >= MOST_ATTEMPTS:
                error = f"{job.attempt} replicas ended during the training"
                if await jobs.give_up(job, error):
                    self._ended(job.name, "lost")
                continue
            try:
                examples = await jobs.examples(job)
            except StoreError as error:
                if error.reason != "damaged":
                    raise
                self._ended(job.name, "failed")
                continue
            if examples is not None and not self._teachers.serves(examples.model):
                # a replica that serves its bundle takes it over
                continue
            taken = await jobs.take_over(job)
            if taken is None:
                continue
            if died:
                self._ended(job.name, "lost")
            if examples is None:
                await jobs.update(taken, state="failed", error=_GONE, key="")
                continue
            log.info("training_resumed", classifier=job.name, attempt=taken.attempt)
            self._begin(jobs, taken, examples, None)
            return

    def _ended(self, name: str, outcome: str) -> None:
        self._metrics.training_jobs.labels(outcome).inc()
        log.info("training_ended", classifier=name, outcome=outcome)

    async def _run(
        self,
        jobs: Jobs,
        job: Job,
        examples: Examples | None,
        vectors: Sequence[Vectors | None] | None,
    ) -> None:
        progress = _Progress()
        task = asyncio.current_task()
        beats = asyncio.create_task(_beat(jobs, job, progress, task))
        outcome = "failed"
        try:
            async with self._turn:
                self._waiting.pop(job.uid, None)
                examples = examples or await jobs.examples(job)
                if examples is None:
                    raise InvalidError(_GONE)
                teacher = await self._teachers.teacher(examples.model)
                known = vectors or [None] * len(examples.inputs)
                whole = await self._embed(jobs, job, examples, known, teacher.embedder, progress)
                progress.stage, progress.done = "training", job.total
                await jobs.update(job, stage=progress.stage, done=progress.done)
                learnt = await self._learn(examples, whole, teacher.revision)
                progress.storing = True
                await self._keep(jobs, job, examples, learnt, teacher.revision)
            outcome = "done"
        except asyncio.CancelledError:
            outcome = "cancelled"
            await jobs.update(job, state="lost")
            raise
        except InvalidError as error:
            await jobs.refuse(job, str(error))
        except Exception as error:  # noqa: BLE001 it is logged
            if bucket.unreachable(error):
                # without heartbeats it is lost: a replica takes it over when the store answers
                outcome = "cancelled"
                reason = str(error)[:300]
                log.warning("training_interrupted", classifier=job.name, reason=reason)
                return
            log.error("training_failed", classifier=job.name, outline=outline(error))
            said = str(error) if isinstance(error, UnavailableError) else ""
            said = (
                "the engine failed on a document" if isinstance(error, EngineFailedError) else said
            )
            said = said or "internal error; see the log of the replica"
            await jobs.update(job, state="failed", error=said)
        finally:
            beats.cancel()
            self._ended(job.name, outcome)

    async def _embed(
        self,
        jobs: Jobs,
        job: Job,
        examples: Examples,
        known: Sequence[Vectors | None],
        embedder: BackgroundEmbedder,
        progress: _Progress,
    ) -> Vectors:
        """The vectors of all examples, ``[examples, dimensions]``; embeds the unknown ones."""
        rows = list(known)
        unknown = [place for place, row in enumerate(rows) if row is None]
        if unknown:
            progress.stage, progress.done = "embedding", len(rows) - len(unknown)
            await jobs.update(job, stage=progress.stage, done=progress.done)
        place = iter(unknown)
        async for outcome in embedder.each([examples.inputs[at] for at in unknown]):
            if isinstance(outcome, UnusableInputError):
                raise InvalidError(str(outcome), "inputs") from outcome
            rows[next(place)] = normalise(outcome.vector())
            progress.done += 1
        return np.stack([row for row in rows if row is not None])

    async def _learn(self, examples: Examples, vectors: Vectors, revision: str) -> Learnt:
        try:
            further = await self._store.unlabelled(examples, revision)
        except NotFoundError as error:
            raise InvalidError(f"unlabelled: {error}", "unlabelled") from error

        def learn(stop: threading.Event) -> Learnt:
            # this import takes seconds
            from docsplit.heads.learn import learn

            return learn(vectors, examples, math.inf, stop, further)

        return await executors.BACKGROUND.run_stoppable(learn)

    async def _keep(
        self, jobs: Jobs, job: Job, examples: Examples, learnt: Learnt, revision: str
    ) -> None:
        """Store the head of a job that still exists, and remove the job."""
        from service.learning.store import Head

        if not await jobs.update(job):
            raise asyncio.CancelledError
        heads = await self._store.classifiers()
        head = Head(job.name, job.uid, revision, learnt.labels, learnt.report, learnt.network)
        await heads.put(head, examples)
        if await jobs.get(job.name) is None:
            # deleted during the write of the head
            await heads.withdraw(job.name, job.uid)
        await jobs.remove(job)


def _size(vectors: Sequence[Vectors | None] | None) -> int:
    return sum(one.nbytes for one in vectors or () if one is not None)


def _may_hold_jobs(path: str) -> bool:
    return "://" in path or Path(path, "heads").exists()


async def _beat(jobs: Jobs, job: Job, progress: _Progress, task: asyncio.Task[None] | None) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        try:
            known = await jobs.update(job, stage=progress.stage, done=progress.done)
        except Exception as error:  # noqa: BLE001 the store may work again at the next heartbeat
            log.warning("training_heartbeat_failed", classifier=job.name, reason=str(error)[:300])
            continue
        # once the head is being stored, the training itself removes the job, and withdraws the head
        # of a job that was deleted
        if not known and not progress.storing and task is not None:
            task.cancel()
            return
