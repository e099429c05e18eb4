"""/jobs: the progress of jobs, and their end."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from service.embedding.batching import clients
from service.errors import NotFoundError
from service.keys.file import Right
from service.server.bodies.fields import JOB_ID
from service.server.bodies.large import BoundedRoute
from service.server.edge import rights
from service.server.edge.errors import documented
from service.server.routes import inference
from service.server.routes.stored.documents import DuplicateOut

if TYPE_CHECKING:
    from service.jobs.table import Job

router = APIRouter(route_class=BoundedRoute, prefix="/jobs", tags=["index"])

JobId = Annotated[str, Path(pattern=JOB_ID, description="as the route that began it answered")]

# refusals, and documents with near-duplicates, that a job names
MOST_REFUSALS = 100
MOST_MARKED = 100
# near-duplicates that it names of each document
MOST_MATCHES = 3


class JobFilesOut(BaseModel):
    """The files of a job."""

    total: int
    done: int = Field(description="files that were read, and whose documents are in the index")
    failed: int = Field(description="files that could not be read")


class JobDocumentsOut(BaseModel):
    """The documents in the files of a job."""

    written: int
    unchanged: int = Field(description="documents that the index already had")
    marked: int = Field(
        description="with `on_duplicate=mark`: written documents of which the index has "
        "near-duplicates; else 0"
    )


class JobHead(BaseModel):
    """A job, without the reasons of its refusals."""

    id: str
    kind: Literal["files", "map"] = Field(
        description="files: it indexes uploaded files; map: it computes the map of an index, and "
        "its numbers of files, documents and refusals are 0"
    )
    index: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"] = Field(
        description="succeeded: each file was indexed or refused, or the map is stored; "
        "failed: `error` says why the job ended before that"
    )
    files: JobFilesOut
    documents: JobDocumentsOut
    refusals: int = Field(description="refused files, files in archives, and documents")
    error: str | None = Field(description="why the job failed, and what to do")
    started: datetime
    ended: datetime | None


class RefusalOut(BaseModel):
    """A file, a file in an archive, or a document that was refused."""

    id: str = Field(description="the name of the file, which would be the id of its document")
    reason: str


class JobDuplicatesOut(BaseModel):
    """A written document of which the index has near-duplicates."""

    id: str
    duplicates: list[DuplicateOut] = Field(
        max_length=MOST_MATCHES, description="the most similar first"
    )


class JobStepOut(BaseModel):
    """How far the computation of a map is."""

    name: Literal["waiting", "reading", "layout", "placing", "topics", "writing"]
    done: float = Field(description="share of this step, 0 to 1")


class JobOut(JobHead):
    """A job."""

    step: JobStepOut | None = Field(description="of a job of the kind map; else null")
    refused: list[RefusalOut] = Field(max_length=MOST_REFUSALS, description="the first of them")
    duplicates: list[JobDuplicatesOut] = Field(
        max_length=MOST_MARKED, description="the first of the marked documents"
    )
    links: int | None = Field(
        description="with `find_links`: the pairs of documents with a link in a text, in the whole "
        "index; else null, and until the job has looked for them"
    )


class JobsOut(BaseModel):
    """Jobs, the newest first."""

    jobs: list[JobHead]


@router.get("", responses=documented(401, 422, 503))
async def list_jobs(request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> JobsOut:
    """The newest jobs that the key may see."""
    jobs = await inference.service_of(request).jobs.listed()
    found = [job for job in jobs if _visible(request, job)]
    return JobsOut(jobs=[JobHead.model_validate(_fields(job)) for job in found[:limit]])


@router.get("/{job_id}", responses=documented(401, 404, 422, 503))
async def describe_job(request: Request, job_id: JobId) -> JobOut:
    """A job; any replica answers."""
    return out_of(await find(request, job_id))


@router.delete("/{job_id}", responses=documented(401, 404, 422, 503))
async def cancel_job(request: Request, job_id: JobId) -> JobOut:
    """Cancel a job, unless it has ended. What it has done stays."""
    service = inference.service_of(request)
    job = await find(request, job_id)
    rights.require(request, Right.WRITE_INDEXES, job.subject)
    await service.jobs.cancel(job_id)
    return out_of(job if job.ended else await find(request, job_id))


async def find(request: Request, job_id: str) -> Job:
    """A job.

    Raises:
        NotFoundError: there is none, or the key may not see it.
    """
    job = await inference.service_of(request).jobs.get(job_id)
    if job is None or not _visible(request, job):
        raise NotFoundError("there is no job of that id: jobs are kept for a day")
    return job


def _visible(request: Request, job: Job) -> bool:
    """Whether the key may read the index of a job, or began the job and may write to the index."""
    if rights.may(request, Right.READ_INDEXES, job.subject):
        return True
    own = job.owner == clients.current().name
    return own and rights.may(request, Right.WRITE_INDEXES, job.subject)


def out_of(job: Job) -> JobOut:
    """A job with its refusals and near-duplicates."""
    refused = [{"id": name, "reason": reason} for name, reason in job.details.get("refused", ())]
    marked = [
        {"id": name, "duplicates": [{"id": one, "resemblance": share} for one, share in near]}
        for name, near in job.details.get("duplicates", ())
    ]
    step = None
    if job.kind == "map":
        step = {"name": job.details.get("step", "waiting"), "done": job.details.get("share", 0.0)}
    lists = {"refused": refused, "duplicates": marked}
    links = job.details.get("links")
    return JobOut.model_validate(_fields(job) | lists | {"step": step, "links": links})


def _fields(job: Job) -> dict[str, object]:
    # a map counts no files and no documents of them
    count = Counter(job.progress)
    return {
        "id": job.id,
        "kind": job.kind,
        "index": job.subject,
        "state": job.state,
        "files": {"total": count["files"], "done": count["done"], "failed": count["failed"]},
        "documents": {
            "written": count["written"],
            "unchanged": count["unchanged"],
            "marked": count["marked"],
        },
        "refusals": count["refused"],
        "error": job.error or None,
        "started": datetime.fromtimestamp(job.started, UTC),
        "ended": datetime.fromtimestamp(job.heartbeat, UTC) if job.ended else None,
    }
