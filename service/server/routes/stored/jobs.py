"""/jobs: the progress of jobs, and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query, Request

from service.embedding.batching import clients
from service.errors import NotFoundError
from service.keys.file import Right
from service.server.bodies.job_bodies import JobOut, JobsOut, head_of, out_of
from service.server.bodies.names import JOB_ID
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.routes import inference

if TYPE_CHECKING:
    from service.jobs.table import Job

router = APIRouter(prefix="/jobs", tags=["index"])

JobId = Annotated[str, Path(pattern=JOB_ID, description="as the route that began it answered")]


@router.get("", responses=documented(401, 422, 503))
async def list_jobs(request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> JobsOut:
    """The newest jobs that the key may see."""
    async with deadline.within(request):
        jobs = await inference.service_of(request).jobs.jobs()
        found = [job for job in await jobs.all() if _visible(request, job)]
    return JobsOut(jobs=[head_of(jobs.present(job)) for job in found[:limit]])


@router.get("/{job_id}", responses=documented(401, 404, 422, 503))
async def describe_job(request: Request, job_id: JobId) -> JobOut:
    """A job; any replica answers."""
    async with deadline.within(request):
        runner = inference.service_of(request).jobs
        job = runner.running(job_id)
        if job is None or not _visible(request, job):
            job = (await runner.jobs()).present(await find(request, job_id))
        return out_of(job)


@router.delete("/{job_id}", responses=documented(401, 404, 422, 503))
async def cancel_job(request: Request, job_id: JobId) -> JobOut:
    """Cancel a job, unless it has ended. What it has done stays."""
    service = inference.service_of(request)
    async with deadline.within(request):
        job = await find(request, job_id)
        rights.require(request, Right.WRITE_INDEXES, job.index)
        await service.jobs.cancel(job_id)
        return out_of(job if job.ended else await find(request, job_id))


async def find(request: Request, job_id: str) -> Job:
    """A job.

    Raises:
        NotFoundError: there is none, or the key may not see it.
    """
    jobs = await inference.service_of(request).jobs.jobs()
    job = await jobs.get(job_id)
    if job is None or not _visible(request, job):
        raise NotFoundError("there is no job of that id: jobs are kept for a day")
    return job


def _visible(request: Request, job: Job) -> bool:
    """Whether the key may read the index of a job, or began the job and may write to the index."""
    if rights.may(request, Right.READ_INDEXES, job.index):
        return True
    own = job.owner == clients.current().name
    return own and rights.may(request, Right.WRITE_INDEXES, job.index)
