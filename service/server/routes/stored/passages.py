"""POST /passages: the passages of documents that fit a text, or a stored document or its part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, model_validator

from service.index.query.filters import Filter
from service.server.bodies.encoding import json_response, stored_object
from service.server.bodies.fields import INDEX_NAME, AreaIn, QueryIn, Span
from service.server.bodies.large import BoundedRoute
from service.server.edge import rights
from service.server.edge.errors import written
from service.server.routes import inference
from service.tracing.stages import Stage

if TYPE_CHECKING:
    from service.index.query.passages import Found

router = APIRouter(route_class=BoundedRoute, tags=["index"])

# a document's text has fewer characters
_LAST = 2**31 - 1


class PassagesRequest(QueryIn):
    """The query and its options."""

    index: Annotated[str, Field(pattern=INDEX_NAME)]
    start: int | None = Field(
        None, ge=0, le=_LAST, description="with id: first character of a part of the document"
    )
    end: int | None = Field(None, ge=1, le=_LAST, description="with start: one past its last")
    mode: Literal["cosine", "words", "hybrid"] = "hybrid"
    top_k: int = Field(10, ge=1, le=100, description="most documents")
    passages: int = Field(3, ge=1, le=10, description="most passages of each document")
    snippet_characters: int = Field(300, ge=20, le=2000, description="most characters of a snippet")
    filter: Filter | None = Field(None, description="see docs/reference/api/search.md, Filters")
    area: AreaIn | None = Field(None, description="only documents inside an area of the map")

    @model_validator(mode="after")
    def _part(self) -> PassagesRequest:
        if (self.start is None) != (self.end is None):
            raise ValueError("give start and end together, or neither")
        if self.start is not None and self.end is not None:
            if self.id is None:
                raise ValueError("start, end: give them only with id")
            if self.end <= self.start:
                raise ValueError("end: give a number above start")
        return self


class SnippetOut(Span):
    """The part of a passage that has the most of the query's words."""

    text: str


class PassageOut(Span):
    """A window of the document."""

    score: float = Field(description="the mode's ranking score")
    cosine: float
    words: float = Field(description="share of the query's words in it, by their weight")
    page: int | None = Field(description="of the snippet's weightiest word of the query, from 1")
    heading: str | None = Field(description="the last one up to that word")
    snippet: SnippetOut


class PassagesOut(BaseModel):
    """A document with its best passages, the best first."""

    id: str
    score: float = Field(description="of the best passage")
    cosine: float = Field(description="of the whole document")
    title: str | None
    metadata: dict[str, Any]
    passages: list[PassageOut]


_STATUSES = (400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503)


@router.post("/passages", **written(list[PassagesOut], *_STATUSES, said="Highest score first."))
async def find_passages(request: Request, body: PassagesRequest) -> Response:
    """Passages of documents that fit a text, or a document of the index or a part of it."""
    service = inference.service_of(request)
    name = await rights.readable(request, body.index)
    index = await inference.open_index(request, name)
    where = await inference.condition(request, index, body.filter, body.area)
    from service.index.query.passages import Form, part_of, search

    headers: dict[str, str] = {}
    if body.id is not None and body.start is not None and body.end is not None:
        await inference.reserve(request, index, body.id)
        query = await part_of(index, body.id, body.start, body.end)
    else:
        query, headers = await inference.query(request, index, body)
    query = replace(query, reserve=inference.reserving_heads(request))
    form = Form(body.top_k, body.passages, body.snippet_characters)
    with Stage("search") as stage:
        found = await search(index, query, body.mode, form, where)
        stage.note({"docsplit.mode": f"passages {body.mode}", "docsplit.hits": len(found)})
    service.metrics.index_search_seconds.labels(f"passages {body.mode}").observe(stage.seconds)
    content = [_document(one) for one in found]
    return json_response(content, headers)


def _document(found: Found) -> dict[str, Any]:
    return {
        "id": found.id,
        "score": found.passages[0].score,
        "cosine": found.cosine,
        "title": found.title,
        "metadata": stored_object(found.metadata),
        "passages": found.passages,
    }
