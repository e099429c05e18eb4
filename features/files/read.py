"""POST /read: the text of a file, with its pages and headings."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from features.files import form
from features.files.feature import uploads_of
from service import executors
from service.errors import UnavailableError
from service.server.bodies.encoding import json_response
from service.server.edge import deadline
from service.server.edge.errors import documented
from service.server.routes import inference
from service.server.routes.turns import Turn

router = APIRouter(tags=["embed"])

_TURN = Turn("readings of files")

_FORM = form.documented(
    "file",
    {
        "type": "string",
        "format": "binary",
        "description": "the end of its name says of which kind it is",
    },
)


class HeadingOut(BaseModel):
    """A heading of a text."""

    start: int = Field(description="its first character")
    level: int = Field(description="1 is the highest")
    title: str


class TextOut(BaseModel):
    """What a file holds."""

    text: str
    title: str | None
    author: str | None
    date: str | None = Field(description="in ISO 8601")
    pages: list[int] = Field(description="the first character of each page or slide")
    headings: list[HeadingOut]


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The text; offsets count Unicode code points.", "model": TextOut},
    **documented(400, 401, 408, 413, 415, 422, 429, 503),
}


@router.post(
    "/read",
    responses=_ANSWERS,
    openapi_extra=_FORM,
    response_model=None,
    response_class=Response,
)
async def read_file(request: Request) -> Response:
    """Read a PDF, office, HTML, mail or text file into text. The service stores nothing."""
    service = inference.service_of(request)
    if service.ending:
        raise UnavailableError("the service is stopping: send the file again in a moment")
    _TURN.check_room()
    uploads = uploads_of(request)
    # the route must work where no volume for indexes is mounted
    upload = await uploads.open(anywhere=True)
    try:
        await form.send_to(upload, request, service.settings.max_file_bytes, 1)
        async with deadline.within(request), _TURN.taken():
            content = await uploads.texts.read(upload)
    finally:
        uploads.close_upload(upload)
    answer = {
        "text": content.text,
        "title": content.title,
        "author": content.author,
        "date": content.date,
        "pages": content.pages,
        "headings": [one._asdict() for one in content.headings],
    }
    return await executors.TEXTS.run(json_response, answer)
