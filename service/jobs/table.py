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
from service.index.leases import SILENT_SECONDS, Silence
from service.index.rows.keyed import KeyedTable, Row
from service.index.sql import Sql
from service.index.storage.database import Database

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Kind = Literal["files", "map"]

# a job without a heartbeat for this long has lost its replica
LOST_SECONDS = 60.0
# a job that waits writes a heartbeat every 20 s
_WAITING_SILENT_SECONDS = 30.0
# a job that has ended is kept for this long, if it is among the newest
KEEP_SECONDS = 86_400.0
KEEP_JOBS = 1000
# after so many heartbeats, former versions of the table are removed: a job may take hours
_BEATS = 100
LOST: dict[Kind, str] = {
    "files": "its replica ended: send the files again; what was indexed stays",
    "map": "its replica ended: start the map again",
}
_HEAD = ["id", "kind", "index", "owner", "state", "progress", "error", "started", "heartbeat"]


@dataclass(frozen=True, slots=True)
class Job:
    """A job.

    Attributes:
        id: 32 hex digits.
        index: the name of the index that it changes.
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
    ) -> Job:
        """Write a queued job; it is durable when this returns. Old jobs are removed."""
        await self._forget()
        now = time.time()
        held = {**(details or {})}
        name = uuid.uuid4().hex
        job = Job(name, kind, index, owner, "queued", {**progress}, "", now, now, held)
        await self._table.put(_row(job), replace=False)
        await self._table.sync()
        return job

    async def get(self, job_id: str) -> Job | None:
        """A job."""
        row = await self._table.get(job_id)
        return _job(row) if row is not None and row["kind"] in LOST else None

    async def all(self) -> list[Job]:
        """All jobs without their details, the newest first."""
        # versions up to 0.1.0 had another kind
        jobs = [_job(row) for row in await self._table.rows(columns=_HEAD) if row["kind"] in LOST]
        return sorted(jobs, key=lambda job: job.started, reverse=True)

    async def open(self, kind: Kind, index: str) -> list[Job]:
        """The queued and running jobs of a kind that change an index."""
        found = [job for job in await self.all() if (job.kind, job.index) == (kind, index)]
        return [job for job in found if not self.present(job).ended]

    def present(self, job: Job) -> Job:
        """A job of the table as it is now: it has failed if its replica is gone."""
        silent = SILENT_SECONDS if job.state == "running" else _WAITING_SILENT_SECONDS
        expires = job.heartbeat + LOST_SECONDS
        if job.ended or not self._silence.ended(
            job.id, job.heartbeat, expires, LOST_SECONDS, silent
        ):
            return job
        return replace(job, state="failed", error=LOST[job.kind])

    async def beat(self, job: Job) -> bool:
        """Write an open job's state, results and heartbeat; False if it was ended elsewhere."""
        values = {**_results(job), "heartbeat": time.time()}
        known = await self._table.change(_open(job.id), state=job.state, **values)
        self._beats += 1
        if self._beats % _BEATS == 0:
            await self._table.tidy()
        return known

    async def end(self, job: Job) -> None:
        """Write the end of a job: its results, and its state unless it was ended elsewhere."""
        results = {**_results(job), "heartbeat": time.time()}
        final = {"state": job.state, "error": job.error}
        # one write: a late heartbeat then finds the job ended, and changes nothing
        if not await self._table.change(_open(job.id), **final, **results):
            await self._table.change(sql.compare("id", "=", job.id), **results)
        await self._table.sync()
        await self._table.tidy()

    async def cancel(self, job_id: str) -> None:
        """Mark an open job as cancelled; its replica sees this at its next heartbeat."""
        await self._table.change(_open(job_id), state="cancelled")
        await self._table.sync()

    async def _forget(self) -> None:
        now = time.time()
        rows = await self._table.rows(columns=["id", "heartbeat"])
        rows.sort(key=lambda row: row["heartbeat"], reverse=True)
        recent = [row for row in rows[:KEEP_JOBS] if now - row["heartbeat"] <= KEEP_SECONDS]
        if gone := [row["id"] for row in rows[len(recent) :]]:
            await self._table.delete(self._table.of(*gone))


def _open(job_id: str) -> Sql:
    """The condition that a job has not ended."""
    return sql.every(sql.compare("id", "=", job_id), sql.among("state", ["queued", "running"]))


def _results(job: Job) -> dict[str, str]:
    return {"progress": json.dumps(job.progress), "details": json.dumps(job.details)}


def _row(job: Job) -> Row:
    return asdict(job) | _results(job)


def _job(row: Row) -> Job:
    details = json.loads(row.get("details", "{}"))
    return Job(**row | {"progress": json.loads(row["progress"]), "details": details})
