"""Trainings that outlive their request, in LanceDB tables where every replica sees them.

A job's small row is rewritten at every heartbeat, so its examples stand in a table of their own.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa
from lancedb.expr import Expr, col, lit

from heads.examples import Examples, digests
from service import executors
from service.errors import ConflictError
from service.index.rows.keyed import KeyedTable
from service.index.storage.database import Database

State = Literal["running", "failed", "lost"]
Stage = Literal["waiting", "embedding", "training"]

# a job without a heartbeat for so long has lost its replica
LOST_SECONDS = 60.0
# a replica that shuts down says that its job is lost: another takes it after so long
LEFT_SECONDS = 10.0
# replicas that one job may take down with it
MOST_ATTEMPTS = 3
# examples that no job names are what a replica left that died between two writes
STRAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Job:
    """A training of a classifier.

    Attributes:
        name: of the classifier.
        uid: of this training; the head that comes of it bears it too. Behind a dash it says how
            often the job was begun, where that is more than once.
        key: of its examples; empty where they were at fault and are not kept.
        state: as it was written last; ``state_at`` tells what it is.
        done: documents embedded, of ``total``.
        error: what went wrong, where it failed.
        started: seconds since the epoch, as ``heartbeat``.
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
        """How often it was begun, replicas that shut down in good order not counted."""
        return int(self.uid.partition("-")[2] or 1)

    def state_at(self, now: float) -> State:
        """The state, seen at ``now`` seconds since the epoch."""
        silent = now - self.heartbeat > LOST_SECONDS
        return "lost" if self.state == "running" and silent else self.state


class Jobs:
    """At most one training a classifier.

    Args:
        database: where the tables lie.
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

    async def get(self, name: str) -> Job | None:
        """The training of a classifier that runs, failed or was lost."""
        row = await self._jobs.get(name)
        return None if row is None else Job(**row)

    async def names(self) -> list[str]:
        """Classifiers with such a training."""
        return await self._jobs.keys()

    async def idle(self, name: str) -> None:
        """Raise ConflictError where a training of the classifier runs."""
        job = await self.get(name)
        if job is not None and job.state_at(time.time()) == "running":
            raise ConflictError(
                "a training of this classifier is running: GET /classifiers/{name} shows it, "
                "DELETE /classifiers/{name} ends it"
            )

    async def claim(self, name: str, examples: Examples) -> Job:
        """Begin a training; of several replicas that try one has it.

        The examples are durable when this returns.

        Raises:
            ConflictError: one is running.
        """
        await self.idle(name)
        key = await self._keep(examples)
        now = time.time()
        total = len(examples.inputs)
        job = Job(name, uuid.uuid4().hex, key, "running", "waiting", 0, total, "", now, now)
        try:
            former = await self.get(name)
            ended = f"target.state != 'running' OR target.heartbeat < {now - LOST_SECONDS!r}"
            await self._jobs.put(asdict(job), replace=ended)
            held = await self.get(name)
            if held is None or held.uid != job.uid:
                raise ConflictError("another training of this classifier has just begun")
            await self._jobs.sync()
        except BaseException:
            # also where the client left: what nobody knows of must not seem to run
            await self.remove(job)
            raise
        if former is not None:
            await self._drop(former.key)
        return job

    async def lost(self) -> list[Job]:
        """Jobs whose replicas have ended, or have left them."""
        now = time.time()
        where = (
            f"(state = 'running' AND heartbeat < {now - LOST_SECONDS!r})"
            f" OR (state = 'lost' AND heartbeat < {now - LEFT_SECONDS!r})"
        )
        return [Job(**row) for row in await self._jobs.rows(where)]

    async def take_over(self, job: Job) -> Job | None:
        """Begin a lost job anew; None where another replica has it, or it is gone."""
        attempt = job.attempt + (job.state == "running")
        uid = f"{uuid.uuid4().hex}-{attempt}"
        if not await self._change_lost(job, uid=uid, state="running", stage="waiting", done=0):
            return None
        held = await self.get(job.name)
        return held if held is not None and held.uid == uid else None

    async def give_up(self, job: Job, error: str) -> bool:
        """Write that a lost job failed, its examples kept; whether nobody else has done so."""
        uid = f"{uuid.uuid4().hex}-{job.attempt}"
        return await self._change_lost(job, uid=uid, state="failed", error=error)

    async def _change_lost(self, job: Job, **columns: Any) -> bool:
        columns["heartbeat"] = time.time()
        # nobody has written to it since: another replica would have changed the uid, its own one
        # the heartbeat
        where = f"uid = '{job.uid}' AND heartbeat = {job.heartbeat!r}"
        return await self._jobs.change(where, **columns)

    async def examples(self, job: Job) -> Examples | None:
        """What a job trains on; None where that is gone."""
        blob = await self._blob(job)
        return await executors.STORE.run(Examples.from_bytes, blob) if blob else None

    async def labelled(self, job: Job) -> set[bytes]:
        """Digests of the texts that a job trains on; none where they are gone."""
        # one compressed list at a time
        async with self._reading:
            blob = await self._blob(job)
            return await executors.SCORING.run(digests, blob) if blob else set()

    async def _blob(self, job: Job) -> bytes | None:
        row = await self._examples.get(job.key)
        return None if row is None else row["examples"]

    async def update(self, job: Job, **columns: Any) -> bool:
        """Write columns and a heartbeat; False where the job was cancelled or replaced."""
        columns["heartbeat"] = time.time()
        return await self._jobs.change(_bears(job.uid), **columns)

    async def refuse(self, job: Job, error: str) -> None:
        """Write that a job failed by its examples, and forget these."""
        await asyncio.shield(self._refuse(job, error))

    async def remove(self, job: Job) -> None:
        """Forget a job and its examples, both even where the caller is cancelled in between."""
        await asyncio.shield(self._remove(job))

    async def _refuse(self, job: Job, error: str) -> None:
        if await self.update(job, state="failed", error=error, key=""):
            await self._drop(job.key)
            await self._jobs.sync()

    async def _remove(self, job: Job) -> None:
        await self._jobs.delete(_bears(job.uid))
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


def _bears(uid: str) -> Expr:
    return col("uid").eq(lit(uid))
