"""POST /jobs/embed and GET /jobs/{job_id}/result: a file of texts, and the file of its vectors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from service import executors
from service.embedding.prompts import resolve
from service.errors import ConflictError, MediaTypeError, UnavailableError
from service.server.bodies import parquet
from service.server.bodies.fields import CutSide, ModelName
from service.server.bodies.job_bodies import JobOut, out_of
from service.server.bodies.parquet import VectorFormat
from service.server.edge import deadline
from service.server.edge.errors import documented
from service.server.edge.guard import NDJSON, ROOM
from service.server.lifecycle import Phase
from service.server.lines.records import CLOSE, MEMORY, Records
from service.server.routes import inference
from service.server.routes.stored.jobs import JobId, find
from service.server.routes.trainings import Turn
from service.textfiles.progress import Options

if TYPE_CHECKING:
    from service.jobs.table import Job

router = APIRouter(prefix="/jobs", tags=["embed"])

_TURN = Turn("readings of Parquet files")
# memory for each component: four copies of the float32 of 1024 texts
_COMPONENT_BYTES = 4 * 4 * 1024

_AS_EMBED = Query(description="as in `POST /embed`")
_TEXT: dict[str, Any] = {"type": "string"}
_LINE = {
    "description": "one line",
    "anyOf": [
        _TEXT,
        {
            "type": "object",
            "properties": {
                "id": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
                "text": _TEXT,
            },
            "required": ["text"],
        },
    ],
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            NDJSON: {"schema": _LINE},
            parquet.MEDIA_TYPE: {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "a table with the column text, and perhaps id",
                }
            },
        },
    },
}
_QUEUED: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "The job is queued.",
        "headers": {"location": {"description": "its path", "schema": {"type": "string"}}},
    },
    **documented(400, 401, 404, 408, 413, 415, 422, 429, 503),
}
_RESULT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A Parquet file with a row for each text, in the order of the texts: `id`, "
        "`vector`, and `error`, why a text has no vector.",
        "content": {parquet.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    },
    **documented(401, 404, 409, 422, 503),
}


@router.post("/embed", status_code=202, responses=_QUEUED, openapi_extra=_BODY)
async def embed_file(
    request: Request,
    response: Response,
    model: Annotated[ModelName, Query()] = None,
    prompt_name: Annotated[
        str | None, Query(description="a prompt of the model, see /info")
    ] = None,
    normalize: Annotated[bool, Query(description="as in `POST /embed`")] = True,
    truncate: Annotated[bool, Query(description="as in `POST /embed`")] = False,
    truncation_direction: Annotated[CutSide, Query(description="as in `POST /embed`")] = "right",
    dimensions: Annotated[int | None, Query(ge=1, description="as in `POST /embed`")] = None,
) -> JobOut:
    """Embed a file of texts in a job: lines of JSON, or a Parquet table.

    The answer comes when the service has all texts; `location` names the job.
    """
    service = inference.service_of(request)
    inference.check_ready(service)
    if service.phase is Phase.DRAINING:
        raise UnavailableError("the service is stopping: send the file again in a moment")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (NDJSON, parquet.MEDIA_TYPE):
        raise MediaTypeError(
            f"content-type: send lines of JSON as {NDJSON}, or Parquet as {parquet.MEDIA_TYPE}",
            headers=CLOSE,
        )
    encoder = inference.encoder_of(request, model)
    inference.check_dimensions(encoder, dimensions)
    options = Options(
        encoder.revision,
        resolve(encoder.manifest, prompt_name),
        dimensions or encoder.manifest.dimensions,
        dimensions is not None,
        normalize,
        truncate,
        truncation_direction,
    )
    job = await (_of_parquet if kind == parquet.MEDIA_TYPE else _of_lines)(request, options)
    response.headers["location"] = f"/jobs/{job.id}"
    return out_of(job)


@router.get(
    "/{job_id}/result", responses=_RESULT, response_model=None, response_class=StreamingResponse
)
async def job_result(
    request: Request,
    job_id: JobId,
    encoding_format: Annotated[VectorFormat, _AS_EMBED] = "float",
) -> StreamingResponse:
    """The vectors of a job of the kind embed, as a Parquet file."""
    service = inference.service_of(request)
    async with deadline.within(request):
        job = await find(request, job_id)
        if job.kind != "embed":
            raise ConflictError("a job of this kind has no result: GET /jobs/{job_id} shows it")
        if not job.ended:
            raise ConflictError(
                "the job has not ended: GET /jobs/{job_id} shows its progress",
                code="job_not_ended",
            )
        if job.state != "succeeded":
            raise ConflictError(
                "the job has no result, because it did not succeed: send the file again"
            )
        options = job.details["options"]
        request.scope[ROOM].reach(MEMORY + _COMPONENT_BYTES * options["width"])
        blocks = await service.textfiles.vectors(job)
        first = await anext(blocks)
    return StreamingResponse(
        parquet.pieces(first, blocks, encoding_format),
        media_type=parquet.MEDIA_TYPE,
        headers={"content-disposition": f'attachment; filename="{job_id}.parquet"'},
    )


async def _of_lines(request: Request, options: Options) -> Job:
    return await _begun(request, options, request.stream(), "line")


async def _of_parquet(request: Request, options: Options) -> Job:
    """Read the file when it is whole, because its end says where its parts are."""
    from service.textfiles import rows

    uploads = inference.service_of(request).uploads
    _TURN.check_room()
    upload = await uploads.open()
    try:
        if (stated := request.headers.get("content-length", "")).isdecimal():
            upload.reserve(int(stated))
        upload.begin("texts")
        async for piece in request.stream():
            await upload.write(piece)
        await upload.flush()
        async with deadline.within(request), _TURN.taken():
            with await executors.UPLOADS.run(upload.read, 0) as file:
                await executors.UPLOADS.run(rows.check, file)
                async with aclosing(rows.lines(file)) as lines:
                    return await _begun(request, options, lines, "row")
    finally:
        uploads.close_upload(upload)


async def _begun(request: Request, options: Options, body: AsyncIterator[bytes], unit: str) -> Job:
    """Store the texts of a body, and queue a job that embeds them."""
    service, room = inference.service_of(request), request.scope[ROOM]
    settings = service.settings
    room.reach(MEMORY)
    limits = settings.max_body_bytes, settings.max_body_values, settings.max_upload_bytes
    async with (
        service.textfiles.arriving(options) as arrival,
        aclosing(Records(room, *limits, unit).blocks(body)) as blocks,
    ):
        async for block in blocks:
            await arrival.add(block)
        async with deadline.within(request):
            return await service.textfiles.begin(arrival)
