"""The table of jobs, which every replica reads: long work that no request waits for.

A job is a row. Each attempt at it has a token, and every write of an attempt asks for that token in
the same commit. Whoever takes the job over, ends it or removes it changes the token, the state or
the row, so an owner that was paused and wakes up changes nothing. If it was paused between its look
at the row and the write of its result, that one write decides (``runner.Attempt.store``).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from service.index import sql
from service.index.leases import SILENT_SECONDS, Silence
from service.index.rows.keyed import KeyedTable, Row
from service.index.sql import Sql
from service.index.storage.database import Database
from service.jobs.runner import State

# an open job without a heartbeat for this long has lost its owner
LOST_SECONDS = 60.0
# a replica that shuts down leaves its job, and another takes it over after this long
LEFT_SECONDS = 10.0
# a job that waits writes a heartbeat every 20 s
_WAITING_SILENT_SECONDS = 30.0
# a job that has ended is kept for this long, if it is among the newest
KEEP_SECONDS = 86_400.0
KEEP_JOBS = 1000
# after so many heartbeats, former versions of the table are removed: a job may take hours
_BEATS = 100
_ALIVE: tuple[State, ...] = ("queued", "running")
_OPEN: tuple[State, ...] = (*_ALIVE, "left")
STATES: tuple[State, ...] = (*_OPEN, "succeeded", "failed", "cancelled")
_HEAD = [
    *("id", "kind", "subject", "owner", "token", "attempt", "state", "progress", "error"),
    *("started", "heartbeat"),
]


@dataclass(frozen=True, slots=True)
class Job:
    """A job.

    Attributes:
        id: 32 hex digits; of a job that its subject has at most one of, ``only`` of both.
        subject: the name of the index that it changes, or of the classifier.
        owner: name of the client that began it.
        token: 32 hex digits, random for each attempt.
        attempt: the number of attempts, without those that ended in an orderly shutdown.
        state: the last written one; ``Jobs.lost`` says whether an open job has no owner. ``left``:
            the owner was shut down.
        progress: counts, depending on the kind.
        details: further results, depending on the kind; of bounded size.
        error: the reason of a failure and the remedy.
        started: seconds since the epoch, like ``heartbeat``, which ends with the job.
    """

    id: str
    kind: str
    subject: str
    owner: str
    token: str
    attempt: int
    state: State
    progress: dict[str, int]
    error: str
    started: float
    heartbeat: float
    details: dict[str, Any]

    @property
    def ended(self) -> bool:
        """Whether its state is final."""
        return self.state not in _OPEN


def only(kind: str, subject: str) -> str:
    """The id of the one job of a kind that a subject may have."""
    return f"{kind} {subject}"


class Jobs:
    """The jobs of all replicas.

    Args:
        database: holds the table.
        former: held the tables of versions up to 0.1: ``database``, and that of the trainings.
    """

    def __init__(self, database: Database, former: Database | None = None) -> None:
        texts = ("id", "kind", "subject", "owner", "token", "state", "progress", "details", "error")
        numbers = {"started": pa.float64(), "heartbeat": pa.float64(), "attempt": pa.int64()}
        texts_of = dict.fromkeys(texts, pa.string())
        self._table = KeyedTable(database, "work", **texts_of, **numbers)
        self._databases = database, former
        self._beats = 0
        self._silence = Silence()

    async def add(
        self,
        kind: str,
        subject: str,
        owner: str,
        progress: Mapping[str, int],
        details: Mapping[str, Any] | None = None,
        *,
        single: bool = False,
    ) -> Job | None:
        """Write a queued job; it is durable when this returns. Old jobs are removed.

        Args:
            single: the subject has one job of this kind; it replaces one that ended or is lost.

        Returns:
            The job; None if it is single and another one has an owner.
        """
        await self._forget()
        now, token = time.time(), uuid.uuid4().hex
        name = only(kind, subject) if single else token
        held = {**(details or {})}
        job = Job(name, kind, subject, owner, token, 1, "queued", {**progress}, "", now, now, held)
        free = sql.negated(sql.among("target.state", _ALIVE))
        former = await self.get(name) if single else None
        if former is not None and self.lost(former):
            free = sql.some(free, _unchanged(former, "target."))
        if not await self._table.put(_row(job), replace=free):
            return None
        await self._table.sync()
        return job

    async def get(self, job_id: str) -> Job | None:
        """A job."""
        row = await self._table.get(job_id)
        return None if row is None else _job(row)

    async def all(
        self,
        kinds: Collection[str],
        states: Collection[State] = STATES,
        *,
        details: bool = False,
    ) -> list[Job]:
        """The jobs of some kinds, with or without their details, the newest first."""
        where = sql.every(sql.among("kind", kinds), sql.among("state", states))
        jobs = [_job(row) for row in await self._table.rows(where, None if details else _HEAD)]
        return sorted(jobs, key=lambda job: job.started, reverse=True)

    async def abandoned(self, kinds: Collection[str], silent: float | None = None) -> list[Job]:
        """Open jobs of some kinds without an owner; for ``silent`` see ``lost``."""
        jobs = await self.all(kinds, _OPEN, details=True)
        return [job for job in jobs if self.lost(job, silent)]

    def lost(self, job: Job, silent: float | None = None) -> bool:
        """Whether an open job has no owner: it was left, or its heartbeat stands still.

        Args:
            silent: seconds for which this process must have seen the heartbeat stand still; by
                default some heartbeats, because the clock of the owner may be wrong.
        """
        if job.ended:
            return False
        if job.state == "left":
            seconds, silent = LEFT_SECONDS, 0.0
        else:
            seconds = LOST_SECONDS
            if silent is None:
                silent = SILENT_SECONDS if job.state == "running" else _WAITING_SILENT_SECONDS
        expires = job.heartbeat + seconds
        return self._silence.ended(job.token, job.heartbeat, expires, seconds, silent)

    async def holds(self, job: Job) -> bool:
        """Whether the attempt still owns its job."""
        return bool(await self._table.rows(_of(job), ["id"]))

    async def beat(self, job: Job) -> bool:
        """Write an attempt's state, results and heartbeat; False if it owns the job no more."""
        values = {**_results(job), "state": job.state, "heartbeat": time.time()}
        known = await self._table.change(_of(job), **values)
        self._beats += 1
        if self._beats % _BEATS == 0:
            await self._table.tidy()
        return known

    async def end(self, job: Job, *, stored: bool = False) -> bool:
        """Write the end of an attempt and its results; False if it owns the job no more.

        Args:
            job: with its final state.
            stored: its result is stored, so it succeeded even if it was given up meanwhile.
        """
        values = {**_results(job), "state": job.state, "error": job.error}
        owned = _attempt(job) if stored else _of(job)
        # one write: a late heartbeat then finds the job ended, and changes nothing
        known = await self._table.change(owned, **values, heartbeat=time.time())
        if not known:
            # it was cancelled; what it did counts
            cancelled = sql.every(_attempt(job), sql.compare("state", "=", "cancelled"))
            await self._table.change(cancelled, **_results(job), heartbeat=time.time())
        await self._table.sync()
        await self._table.tidy()
        return known

    async def take(self, job: Job) -> Job | None:
        """Begin the next attempt at a lost job; None if its owner woke up or another took it."""
        attempt, token = job.attempt + (job.state != "left"), uuid.uuid4().hex
        return await self._take(replace(job, attempt=attempt, token=token, state="queued"), job)

    async def give_up(self, job: Job, error: str, **details: Any) -> bool:
        """Mark a lost job as failed; False if its owner woke up or another replica was first.

        It keeps the token: if its owner wakes up within the write of a result, that decides.
        """
        failed = replace(job, state="failed", error=error, details={**job.details, **details})
        given_up = await self._take(failed, job) is not None
        await self._table.sync()
        return given_up

    async def cancel(self, job_id: str) -> None:
        """Mark an open job as cancelled; its replica sees this at its next heartbeat."""
        where = sql.every(sql.compare("id", "=", job_id), sql.among("state", _OPEN))
        await self._table.change(where, state="cancelled")
        await self._table.sync()

    async def remove(self, job: Job) -> None:
        """Delete a job, unless another attempt has begun."""
        await self._table.delete(_attempt(job))
        # before older versions are removed
        await self._table.sync()
        await self._table.tidy()

    async def _take(self, new: Job, job: Job) -> Job | None:
        new = replace(new, heartbeat=time.time())
        values = {name: value for name, value in _row(new).items() if name != "id"}
        return new if await self._table.change(_unchanged(job), **values) else None

    async def _forget(self) -> None:
        now = time.time()
        rows = await self._table.rows(columns=["id", "kind", "subject", "heartbeat"])
        # the last job of its subject stays
        rows = [row for row in rows if row["id"] != only(row["kind"], row["subject"])]
        rows.sort(key=lambda row: row["heartbeat"], reverse=True)
        recent = [row for row in rows[:KEEP_JOBS] if now - row["heartbeat"] <= KEEP_SECONDS]
        if gone := [row["id"] for row in rows[len(recent) :]]:
            await self._table.delete(self._table.of(*gone))

    async def adopt(self) -> None:
        """Take in the jobs that versions up to 0.1 stored; the open ones soon count as lost."""
        makers = (_FORMER, _upload), (_TRAINING, _training)
        for database, (columns, new) in zip(self._databases, makers, strict=True):
            if database is None:
                continue
            table = KeyedTable(database, "jobs", **{columns[0]: pa.string()})
            if rows := await table.rows(columns=columns):
                # a job that another replica took in meanwhile stays as it is
                await self._table.put(*(_row(new(row)) for row in rows), replace=False)
                await self._table.sync()
                # so a replica of that version ends its work at its next heartbeat
                await table.delete(table.of(*(row[columns[0]] for row in rows)))


_FORMER = [
    *("id", "kind", "index", "owner", "state", "progress", "details", "error"),
    *("started", "heartbeat"),
]
_TRAINING = [
    *("name", "uid", "key", "state", "stage", "done", "total", "error"),
    *("started", "heartbeat"),
]


def _upload(row: Row) -> Job:
    subject = row.pop("index")
    return _job({**row, "subject": subject, "token": row["id"], "attempt": 1})


def _training(row: Row) -> Job:
    kind, name = "training", row["name"]
    # as uid of a later attempt: 32 digits, a dash and the number of attempts
    attempt = int(row["uid"].partition("-")[2] or 1)
    state: State = "left" if row["state"] == "lost" else row["state"]
    progress = {"done": row["done"], "total": row["total"]}
    details = {"stage": row["stage"], "key": row["key"]}
    end = row["error"], row["started"], row["heartbeat"]
    return Job(
        only(kind, name), kind, name, "", row["uid"], attempt, state, progress, *end, details
    )


def _attempt(job: Job) -> Sql:
    return sql.every(sql.compare("id", "=", job.id), sql.compare("token", "=", job.token))


def _of(job: Job) -> Sql:
    """The condition that an attempt owns its job."""
    return sql.every(_attempt(job), sql.among("state", _ALIVE))


def _unchanged(job: Job, table: str = "") -> Sql:
    """The condition that a job is as it was when it was read: its owner changes the heartbeat."""
    return sql.every(
        sql.compare(f"{table}token", "=", job.token),
        sql.compare(f"{table}state", "=", job.state),
        sql.compare(f"{table}heartbeat", "=", job.heartbeat),
    )


def _results(job: Job) -> dict[str, str]:
    return {"progress": json.dumps(job.progress), "details": json.dumps(job.details)}


def _row(job: Job) -> Row:
    return asdict(job) | _results(job)


def _job(row: Row) -> Job:
    details = json.loads(row.get("details", "{}"))
    return Job(**row | {"progress": json.loads(row["progress"]), "details": details})
