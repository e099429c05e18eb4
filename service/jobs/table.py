"""The table of jobs, which every replica reads: long work that no request waits for."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from service.index import sql
from service.index.replicas.silence import SILENT_SECONDS, Silence
from service.index.rows.keyed import KeyedTable, Row
from service.index.sql import Sql
from service.index.storage.database import Database

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Kind = Literal["files", "map", "embed"]

# a job without a heartbeat for this long has lost its replica
LOST_SECONDS = 60.0
# a job that waits writes a heartbeat every 20 s
_WAITING_SILENT_SECONDS = 30.0
# a job that has ended is kept for this long, if it is among the newest
KEEP_SECONDS = 86_400.0
KEEP_JOBS = 1000
# after so many heartbeats, former versions of the table are removed: a job may take hours
_BEATS = 100
# jobs of other kinds go on at another replica
LOST: dict[Kind, str] = {
    "files": "its replica ended: send the files again; what was indexed stays",
    "map": "its replica ended: start the map again",
}
_OPEN = sql.among("state", ["queued", "running"])
_HEAD = ["id", "kind", "index", "owner", "state", "progress", "error", "started", "heartbeat"]


@dataclass(frozen=True, slots=True)
class Job:
    """A job.

    Attributes:
        id: 32 hex digits.
        index: the name of the index that it changes; empty for the kind ``embed``.
        owner: name of the client that began it.
        state: the last written state; ``Jobs.present`` gives the present one.
        progress: counts, depending on the kind.
        details: further results, depending on the kind; of bounded size.
        error: the reason of a failure and the remedy.
        started: seconds since the epoch, like ``heartbeat``, which ends with the job.
    """

    id: str
    kind: Kind
    index: str
    owner: str
    state: State
    progress: dict[str, int]
    error: str
    started: float
    heartbeat: float
    details: dict[str, Any]

    @property
    def ended(self) -> bool:
        """Whether its state is final."""
        return self.state not in ("queued", "running")

    def holds(self, now: float) -> bool:
        """Whether a job of the kind ``embed`` needs its texts and vectors."""
        if not self.ended:
            return True
        return self.state == "succeeded" and now - self.heartbeat <= KEEP_SECONDS


class Jobs:
    """The jobs of all replicas.

    Args:
        database: holds the table.
    """

    def __init__(self, database: Database) -> None:
        texts = ("id", "kind", "index", "owner", "state", "progress", "details", "error")
        self._table = KeyedTable(
            database,
            "jobs",
            **dict.fromkeys(texts, pa.string()),
            started=pa.float64(),
            heartbeat=pa.float64(),
        )
        self._beats = 0
        self._silence = Silence()

    async def add(
        self,
        kind: Kind,
        index: str,
        owner: str,
        progress: Mapping[str, int],
        details: Mapping[str, Any] | None = None,
        job_id: str | None = None,
    ) -> Job:
        """Write a queued job; it is durable when this returns. Old jobs are removed."""
        await self._forget()
        now = time.time()
        name = job_id or uuid.uuid4().hex
        held = {**(details or {})}
        job = Job(name, kind, index, owner, "queued", {**progress}, "", now, now, held)
        await self._table.put(_row(job), replace=False)
        await self._table.sync()
        return job

    async def get(self, job_id: str) -> Job | None:
        """A job."""
        row = await self._table.get(job_id)
        return None if row is None else _job(row)

    async def all(self) -> list[Job]:
        """All jobs without their details, the newest first."""
        rows = await self._table.rows(columns=_HEAD)
        return sorted(map(_job, rows), key=lambda job: job.started, reverse=True)

    async def open(self, kind: Kind, index: str) -> list[Job]:
        """The queued and running jobs of a kind that change an index."""
        found = [job for job in await self.all() if (job.kind, job.index) == (kind, index)]
        return [job for job in found if not self.present(job).ended]

    def present(self, job: Job) -> Job:
        """A job of the table as it is now: it has failed if its replica is gone."""
        if job.ended or job.kind not in LOST:
            return job
        silent = SILENT_SECONDS if job.state == "running" else _WAITING_SILENT_SECONDS
        if not self._lost(job, silent):
            return job
        return replace(job, state="failed", error=LOST[job.kind])

    async def lost(self, kind: Kind, silent: float = 0.0) -> list[Job]:
        """The open jobs of a kind that no replica works on, the oldest first.

        Args:
            kind: of the jobs.
            silent: seconds for which the heartbeat of a running job must not have changed since
                this process first saw it. A job that waits may go to any replica.
        """
        found = map(_job, await self._table.rows(sql.every(sql.compare("kind", "=", kind), _OPEN)))
        lost = [job for job in found if self._lost(job, silent if job.state == "running" else 0.0)]
        return sorted(lost, key=lambda job: job.started)

    def _lost(self, job: Job, silent: float) -> bool:
        expires = job.heartbeat + LOST_SECONDS
        return self._silence.ended(job.id, job.heartbeat, expires, LOST_SECONDS, silent)

    async def take_over(self, job: Job, details: Mapping[str, Any]) -> Job | None:
        """Queue a lost job here; None if another replica was first, or it was cancelled."""
        taken = replace(job, state="queued", heartbeat=time.time(), details={**details})
        # only a replica that works on the job, or takes it over, changes the heartbeat
        beat = sql.compare("heartbeat", "=", job.heartbeat)
        where = sql.every(sql.compare("id", "=", job.id), _OPEN, beat)
        values = {**_results(taken), "heartbeat": taken.heartbeat}
        return taken if await self._table.change(where, state=taken.state, **values) else None

    async def beat(self, job: Job, now: float) -> bool:
        """Write an open job's state, results and heartbeat.

        Args:
            job: its ``heartbeat`` is the newest that this process may have written.
            now: the new heartbeat.

        Returns:
            False if the job was ended or taken over elsewhere.
        """
        where = sql.every(_mine(job), _OPEN)
        known = await self._table.change(where, state=job.state, **_results(job), heartbeat=now)
        self._beats += 1
        if self._beats % _BEATS == 0:
            await self._table.tidy()
        return known

    async def leave(self, job: Job) -> None:
        """Let another replica take an open job over at once."""
        results = {**_results(job), "heartbeat": time.time() - LOST_SECONDS}
        await self._table.change(sql.every(_mine(job), _OPEN), state=job.state, **results)
        await self._table.sync()

    async def end(self, job: Job) -> None:
        """Write the end of a job: its results, and its state unless it was ended elsewhere."""
        mine = _mine(job)
        results = {**_results(job), "heartbeat": time.time()}
        final = {"state": job.state, "error": job.error}
        # one write: a late heartbeat then finds the job ended, and changes nothing
        if not await self._table.change(sql.every(mine, _OPEN), **final, **results):
            await self._table.change(mine, **results)
        await self._table.sync()
        await self._table.tidy()

    async def cancel(self, job_id: str) -> None:
        """Mark an open job as cancelled; its replica sees this at its next heartbeat."""
        await self._table.change(
            sql.every(sql.compare("id", "=", job_id), _OPEN), state="cancelled"
        )
        await self._table.sync()

    async def remove(self, job: Job) -> None:
        """Remove a job."""
        await self._table.delete(self._table.of(job.id))

    async def _forget(self) -> None:
        now = time.time()
        # the tables of these jobs are still needed
        jobs = [job for job in await self.all() if job.kind != "embed" or not job.holds(now)]
        jobs.sort(key=lambda job: job.heartbeat, reverse=True)
        recent = [job for job in jobs[:KEEP_JOBS] if now - job.heartbeat <= KEEP_SECONDS]
        if gone := [job.id for job in jobs[len(recent) :]]:
            await self._table.delete(self._table.of(*gone))


def _mine(job: Job) -> Sql:
    """The condition that no other replica has taken the job over."""
    return sql.every(sql.compare("id", "=", job.id), sql.compare("heartbeat", "<=", job.heartbeat))


def _results(job: Job) -> dict[str, str]:
    return {"progress": json.dumps(job.progress), "details": json.dumps(job.details)}


def _row(job: Job) -> Row:
    return asdict(job) | _results(job)


def _job(row: Row) -> Job:
    details = json.loads(row.get("details", "{}"))
    return Job(**row | {"progress": json.loads(row["progress"]), "details": details})
