"""POST /indexes/{name}/files: upload files; a job reads and indexes them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from service.embedding.prompts import resolve
from service.errors import UnavailableError
from service.server.bodies.document_bodies import THRESHOLD
from service.server.bodies.job_bodies import JobOut, out_of
from service.server.bodies.names import Name
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.lifecycle import Phase
from service.server.routes import inference
from service.uploads import form
from service.uploads.background import Wish

router = APIRouter(
    prefix="/indexes/{name}/files",
    tags=["index"],
    dependencies=[Depends(rights.of_index)],
)

_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "files": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": form.MOST_FILES,
                            "items": {"type": "string", "format": "binary"},
                            "description": "the name of each file is the id of its document",
                        }
                    },
                    "required": ["files"],
                }
            }
        },
    }
}

_RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "The job is queued.",
        "headers": {"location": {"description": "its path", "schema": {"type": "string"}}},
    },
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 503),
}


@router.post(
    "",
    status_code=202,
    responses=_RESPONSES,
    openapi_extra=_FORM,
)
async def upload_files(
    request: Request,
    response: Response,
    name: Name,
    on_duplicate: Annotated[
        Literal["allow", "mark", "refuse"],
        Query(
            description="compare each new text with other documents of the index: `mark` names "
            "near-duplicates in the job, `refuse` leaves out documents that have any"
        ),
    ] = "allow",
) -> JobOut:
    """Upload files: PDF, office files, HTML, mail, text, and archives of these.

    The answer comes when the service has all bytes. A job then reads the files and indexes their
    documents; `location` names it.
    """
    service = inference.service_of(request)
    await inference.running_of(service)
    if service.phase is Phase.DRAINING:
        raise UnavailableError("the service is stopping: send the files again in a moment")
    async with deadline.within(request):
        index = await (await service.store.indexes()).writable(name)
        encoder = inference.encoder_of_index(request, index)
        running = await inference.running_of(service, encoder)
    headers = request.headers
    upload = await service.uploads.open()
    try:
        if (stated := headers.get("content-length", "")).isdecimal():
            upload.reserve(int(stated))
        kind, most = headers.get("content-type", ""), service.settings.max_file_bytes
        await form.receive(request.stream(), kind, upload, most)
    except BaseException:
        service.uploads.close_upload(upload)
        raise
    threshold = None if on_duplicate == "allow" else THRESHOLD
    wish = Wish(name, index.identity.uid, threshold, on_duplicate == "mark")
    prompt = resolve(encoder.manifest, None)
    count = partial(service.metrics.embedded, model=encoder.name)
    async with deadline.within(request):
        job = await service.uploads.begin(upload, wish, running.embedder, prompt, count)
    response.headers["location"] = f"/jobs/{job.id}"
    return out_of(job)
