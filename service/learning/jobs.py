"""Trainings that outlive their request, in LanceDB tables that every replica sees.

Every heartbeat rewrites a job's small row, so its examples are in a separate table.
"""

import asyncio
import time
import uuid
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar

import pyarrow as pa
import structlog
from lancedb.expr import col, lit

from docsplit.heads.examples import Examples, digests, unpacked
from service import executors
from service.errors import ConflictError, StoreError
from service.index import sql
from service.index.leases import SILENT_SECONDS, Silence
from service.index.rows.keyed import KeyedTable
from service.index.storage.database import Database
from service.logs import outline

log = structlog.get_logger("docsplit")

Content = TypeVar("Content")
State = Literal["running", "failed", "lost"]
Stage = Literal["waiting", "embedding", "training"]

# a job without a heartbeat for this long has lost its replica
LOST_SECONDS = 60.0
# a replica that shuts down marks its job as lost: another takes the job over after this long
LEFT_SECONDS = 10.0
# attempts after which a job fails: each one ended with its replica
MOST_ATTEMPTS = 3
# a replica that dies between two writes leaves examples without a job
STRAY_SECONDS = 86_400.0
# what the reading of damaged examples raises
_DAMAGE = (zlib.error, IndexError, TypeError, ValueError)
_DAMAGED = (
    "the stored examples of this training were damaged, and are deleted now: PUT them again; a "
    "former training keeps its examples, and retrain uses those"
)


@dataclass(frozen=True, slots=True)
class Job:
    """A training of a classifier.

    Attributes:
        name: of the classifier.
        uid: of this training and of its head. From the second attempt on it ends with a dash and
            the number of attempts.
        key: of its examples; empty if they were invalid and are not kept.
        state: the last written one, or ``lost`` from ``Jobs.get`` if its replica seems gone.
        done: documents embedded, of ``total``.
        error: the reason of a failure.
        started: seconds since the epoch, like ``heartbeat``.
    """

    name: str
    uid: str
    key: str
    state: State
    stage: Stage
    done: int
    total: int
    error: str
    started: float
    heartbeat: float

    @property
    def attempt(self) -> int:
        """The number of attempts, without those that ended in an orderly shutdown."""
        return int(self.uid.partition("-")[2] or 1)


class Jobs:
    """The trainings of all replicas; at most one for each classifier.

    Args:
        database: holds the tables.
    """

    def __init__(self, database: Database) -> None:
        self._jobs = KeyedTable(
            database,
            "jobs",
            name=pa.string(),
            uid=pa.string(),
            key=pa.string(),
            state=pa.string(),
            stage=pa.string(),
            done=pa.int64(),
            total=pa.int64(),
            error=pa.string(),
            started=pa.float64(),
            heartbeat=pa.float64(),
        )
        self._examples = KeyedTable(
            database, "job_examples", key=pa.string(), kept=pa.float64(), examples=pa.binary()
        )
        self._reading = asyncio.Lock()
        self._silence = Silence()

    async def get(self, name: str) -> Job | None:
        """The running, failed or lost training of a classifier."""
        row = await self._jobs.get(name)
        if row is None:
            return None
        job = Job(**row)
        gone = job.state == "running" and self._lost(job, SILENT_SECONDS)
        return replace(job, state="lost") if gone else job

    async def names(self) -> list[str]:
        """Classifiers with such a training."""
        return await self._jobs.keys()

    async def require_idle(self, name: str) -> None:
        """Raise ConflictError if a training of the classifier runs."""
        job = await self.get(name)
        if job is not None and job.state == "running":
            raise ConflictError(
                "a training of this classifier is running: GET /classifiers/{name} shows it, "
                "DELETE /classifiers/{name} ends it"
            )

    async def claim(self, name: str, examples: Examples) -> Job:
        """Begin a training; if several replicas try, one succeeds.

        The examples are durable when this returns.

        Raises:
            ConflictError: a training is running.
        """
        await self.require_idle(name)
        key = await self._keep(examples)
        now = time.time()
        total = len(examples.inputs)
        job = Job(name, uuid.uuid4().hex, key, "running", "waiting", 0, total, "", now, now)
        try:
            former = await self.get(name)
            ended = sql.compare("target.state", "<>", "running")
            if former is not None and former.state == "lost":
                beat = sql.compare("target.heartbeat", "=", former.heartbeat)
                same = sql.every(sql.compare("target.uid", "=", former.uid), beat)
                ended = sql.some(ended, same)
            await self._jobs.put(asdict(job), replace=ended)
            held = await self.get(name)
            if held is None or held.uid != job.uid:
                raise ConflictError("another training of this classifier has just begun")
            await self._jobs.sync()
        except BaseException:
            # even if the client has left: a job that no client knows must not seem to run
            await self.remove(job)
            raise
        if former is not None:
            await self._drop(former.key)
        return job

    async def lost(self, silent: float = 0.0) -> list[Job]:
        """Jobs whose replicas have ended or have released them.

        Args:
            silent: seconds for which the heartbeat of a training that seems to run must not have
                changed since this process first saw it.
        """
        rows = await self._jobs.rows(sql.among("state", ["running", "lost"]))
        return [job for job in (Job(**row) for row in rows) if self._lost(job, silent)]

    def _lost(self, job: Job, silent: float) -> bool:
        if job.state == "lost":
            seconds, silent = LEFT_SECONDS, 0.0
        else:
            seconds = LOST_SECONDS
        return self._silence.ended(job.uid, job.heartbeat, job.heartbeat + seconds, seconds, silent)

    async def take_over(self, job: Job) -> Job | None:
        """Start a lost job again; None if another replica has taken it, or it is gone."""
        attempt = job.attempt + (job.state == "running")
        uid = f"{uuid.uuid4().hex}-{attempt}"
        if not await self._change_lost(job, uid=uid, state="running", stage="waiting", done=0):
            return None
        held = await self.get(job.name)
        return held if held is not None and held.uid == uid else None

    async def give_up(self, job: Job, error: str) -> bool:
        """Mark a lost job as failed and keep its examples; False if another replica was first."""
        uid = f"{uuid.uuid4().hex}-{job.attempt}"
        return await self._change_lost(job, uid=uid, state="failed", error=error)

    async def _change_lost(self, job: Job, **columns: Any) -> bool:
        columns["heartbeat"] = time.time()
        # the row must be unchanged: another replica would have changed the uid, the job's own
        # replica the heartbeat
        beat = sql.compare("heartbeat", "=", job.heartbeat)
        where = sql.every(sql.compare("uid", "=", job.uid), beat)
        return await self._jobs.change(where, **columns)

    async def examples(
        self, job: Job, reserve: Callable[[int], None] | None = None
    ) -> Examples | None:
        """The examples of a job; None if they are gone.

        Args:
            reserve: called with their bytes, before they are unpacked.

        Raises:
            StoreError: they were damaged, and are deleted now; the job has failed.
        """
        # one compressed list at a time until there is memory for it
        async with self._reading:
            blob = await self._blob(job)
            if blob and reserve is not None:
                reserve(await self._read(job, unpacked, blob))
        return await self._read(job, Examples.from_bytes, blob) if blob else None

    async def _read(self, job: Job, read: Callable[[bytes], Content], blob: bytes) -> Content:
        try:
            return await executors.STORE.run(read, blob)
        except _DAMAGE as error:
            log.error("training_examples_damaged", classifier=job.name, outline=outline(error))
            # otherwise they would stop every later attempt
            await self.refuse(job, _DAMAGED)
            raise StoreError(_DAMAGED, "damaged") from error

    async def labelled(self, job: Job) -> set[bytes]:
        """Digests of the texts of a job's examples; none if they are gone or damaged."""
        # one compressed list at a time
        async with self._reading:
            blob = await self._blob(job)
            try:
                return await executors.SCORING.run(digests, blob) if blob else set()
            except _DAMAGE as error:
                log.error("training_examples_damaged", classifier=job.name, outline=outline(error))
                return set()

    async def _blob(self, job: Job) -> bytes | None:
        row = await self._examples.get(job.key)
        return None if row is None else row["examples"]

    async def update(self, job: Job, **columns: Any) -> bool:
        """Write columns and a heartbeat; False if the job was cancelled or replaced."""
        columns["heartbeat"] = time.time()
        return await self._jobs.change(sql.compare("uid", "=", job.uid), **columns)

    async def refuse(self, job: Job, error: str) -> None:
        """Mark a job as failed because of its examples, and delete them."""
        await asyncio.shield(self._refuse(job, error))

    async def remove(self, job: Job) -> None:
        """Delete a job and its examples, both even if the caller is cancelled in between."""
        await asyncio.shield(self._remove(job))

    async def _refuse(self, job: Job, error: str) -> None:
        if await self.update(job, state="failed", error=error, key=""):
            await self._drop(job.key)
            await self._jobs.sync()

    async def _remove(self, job: Job) -> None:
        await self._jobs.delete(col("uid").eq(lit(job.uid)))
        await self._drop(job.key)
        # before older versions are removed
        await self._jobs.sync()
        await self._jobs.tidy()
        await self._examples.tidy()

    async def _keep(self, examples: Examples) -> str:
        key = uuid.uuid4().hex
        blob = await executors.STORE.run(examples.to_bytes)
        now = time.time()
        await self._examples.put({"key": key, "kept": now, "examples": blob}, replace=False)
        named = [row["key"] for row in await self._jobs.rows(columns=["key"])]
        old = col("kept") < lit(now - STRAY_SECONDS)
        await self._examples.delete(old & ~self._examples.of(key, *named))
        return key

    async def _drop(self, key: str) -> None:
        await self._examples.delete(self._examples.of(key))
