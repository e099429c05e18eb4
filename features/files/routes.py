"""POST /indexes/{name}/files: upload files; a job reads and indexes them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import AfterValidator, BeforeValidator, Field

from docsplit.ranking.references import Rule
from features.files import form
from features.files.background import UploadOptions
from features.files.feature import uploads_of
from service.embedding.prompts import resolve
from service.errors import InvalidError, UnavailableError
from service.keys.file import Right
from service.server.bodies.fields import Name, valid_text
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.routes import inference
from service.server.routes.stored import links
from service.server.routes.stored.documents import THRESHOLD
from service.server.routes.stored.jobs import JobOut, out_of

if TYPE_CHECKING:
    from service.index.found_links import Names, Report

router = APIRouter(
    prefix="/indexes/{name}/files",
    tags=["index"],
    dependencies=[Depends(rights.of_index)],
)

_FORM = form.documented(
    "files",
    {
        "type": "array",
        "minItems": 1,
        "maxItems": form.MOST_FILES,
        "items": {"type": "string", "format": "binary"},
        "description": "the name of each file is the id of its document",
    },
)

_RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "The job is queued.",
        "headers": {"location": {"description": "its path", "schema": {"type": "string"}}},
    },
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 503),
}


def _rule(given: str) -> str:
    Rule.parsed(given)
    return given


LinkRule = Annotated[str, BeforeValidator(valid_text), AfterValidator(_rule), Field(max_length=600)]


async def _names(
    find_links: Annotated[
        bool, Query(description="at the end find the links in all texts of the index, again")
    ] = False,
    link_field: Annotated[
        list[links.FieldName],
        Query(max_length=8, description="with `find_links`: metadata with identifiers"),
    ] = [],  # noqa: B006 FastAPI copies it
    link_rule: Annotated[
        list[LinkRule],
        Query(
            max_length=32,
            description="with `find_links`: a further name of documents, as `IDS=NAME` or "
            "`IDS=NAME@TEXTS`, such as `eip-*=ERC *`",
        ),
    ] = [],  # noqa: B006
) -> Names | None:
    """The names to look for in texts when all files are indexed; None for no search."""
    if not find_links:
        for name, given in (("link_field", link_field), ("link_rule", link_rule)):
            if given:
                raise InvalidError(f"{name}: it needs find_links=true: add it", name)
        return None
    from service.index.found_links import Names

    return Names(fields=tuple(link_field), rules=tuple(map(Rule.parsed, link_rule)))


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
    names: Annotated[Any, Depends(_names)],
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
    if on_duplicate != "allow" or names is not None:
        # the job reveals what the index holds
        rights.require(request, Right.READ_INDEXES, name)
    service = inference.service_of(request)
    await inference.running_of(service)
    if service.ending:
        raise UnavailableError("the service is stopping: send the files again in a moment")
    async with deadline.within(request):
        index = await (await service.store.indexes()).writable(name)
        encoder = inference.encoder_of_index(request, index)
        running = await inference.running_of(service, encoder)
    uploads = uploads_of(request)
    upload = await uploads.open()
    try:
        await form.send_to(upload, request, service.settings.max_file_bytes, form.MOST_FILES)
    except BaseException:
        uploads.close_upload(upload)
        raise
    threshold = None if on_duplicate == "allow" else THRESHOLD
    uid, generation = index.identity.uid, index.identity.generation

    async def find() -> Report:
        async with links.SEARCHES.taken(patient=True):
            return await links.renew(service.store, name, names, uid)

    mark = on_duplicate == "mark"
    finding = None if names is None else find
    options = UploadOptions(name, uid, generation, threshold, mark, finding)
    prompt = resolve(encoder.manifest, None)
    count = partial(service.metrics.embedded, model=encoder.name)
    async with deadline.within(request):
        job = await uploads.begin(upload, options, running.embedder, prompt, count)
    response.headers["location"] = f"/jobs/{job.id}"
    return out_of(job)
