"""POST /indexes/{name}/documents/get and /delete: many documents in one request."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, model_validator

from service import memory
from service.index.query.filters import Filter, compile_filter
from service.keys.file import Right
from service.server.bodies.body import Body
from service.server.bodies.document_bodies import DocumentHead
from service.server.bodies.encoding import json_response, stored_object
from service.server.bodies.large import BodyRoute
from service.server.bodies.names import Identifier, Name
from service.server.edge import deadline, rights
from service.server.edge.bodies import ROOM
from service.server.edge.errors import documented
from service.server.routes import inference

router = APIRouter(route_class=BodyRoute, prefix="/indexes/{name}/documents", tags=["index"])

MOST_IDS = 1000


class GetRequest(Body):
    """The documents to read."""

    ids: list[Identifier] = Field(min_length=1, max_length=MOST_IDS, fail_fast=True)
    text: bool = Field(True, description="whether the answer has the texts")


class ManyOut(DocumentHead):
    """A document without its links."""

    text: str | None = Field(None, description="absent with `text: false`")


class GetOut(BaseModel):
    """The documents in the order of the ids."""

    documents: list[ManyOut]
    missing: list[str] = Field(description="ids of no document")
    damaged: list[str] = Field(description="ids of documents that GET of one answers with 503")
    remaining: list[str] = Field(description="ids for which the answer has no room: ask again")


class DeleteRequest(Body):
    """The documents to delete."""

    ids: list[Identifier] | None = Field(None, min_length=1, max_length=MOST_IDS, fail_fast=True)
    filter: Filter | None = Field(None, description="see docs/reference/api/search.md, Filters")
    dry_run: bool = Field(False, description="only count them")

    @model_validator(mode="after")
    def _ids_or_filter(self) -> DeleteRequest:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or filter")
        return self


class DeleteOut(BaseModel):
    """The deletion is durable."""

    deleted: int = Field(description="documents; with dry_run, those that would be deleted")


_ERRORS = documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 503)
_GET: dict[int | str, dict[str, Any]] = {200: {"model": GetOut}, **_ERRORS}


@router.post(
    "/get",
    responses=_GET,
    response_model=None,
    response_class=Response,
    dependencies=[Depends(rights.to_read_index)],
)
async def get_documents(request: Request, name: Name, body: GetRequest) -> Response:
    """Documents of up to 1,000 ids; an id that occurs twice counts once."""
    async with deadline.within(request):
        index = await (await inference.service_of(request).store.indexes()).open(name, still=True)
        from service.index.query import many
        from service.index.rows import versions

        room = request.scope[ROOM]
        found = await many.get(
            index,
            list(dict.fromkeys(body.ids)),
            body.text,
            reserve=lambda characters: room.reach(memory.needed(characters)),
        )
    documents = [
        {
            "id": head.id,
            "title": head.title,
            "metadata": stored_object(head.metadata),
            "version": versions.text(head.updated),
            **({} if text is None else {"text": text}),
        }
        for head, text in found.documents
    ]
    lists = {"missing": found.missing, "damaged": found.damaged, "remaining": found.remaining}
    return json_response({"documents": documents, **lists})


@router.post("/delete", responses=_ERRORS, dependencies=[Depends(rights.of_index)])
async def delete_documents(request: Request, name: Name, body: DeleteRequest) -> DeleteOut:
    """Delete the documents of some ids, or all that pass a filter.

    It keeps a document that another client writes meanwhile. After a 504, some may be deleted.
    """
    store = inference.service_of(request).store
    if body.filter is not None:
        # the count reveals metadata
        rights.require(request, Right.READ_INDEXES, name)
    async with deadline.within(request):
        index = await (await store.indexes()).open(name)
        from service.index.query import many

        if body.filter is None:
            held = await many.seen(index, list(dict.fromkeys(body.ids or [])))
            if body.dry_run or not held:
                return DeleteOut(deleted=len(held))
            return DeleteOut(deleted=await store.delete_seen(name, index.identity.uid, held))
        where = compile_filter(body.filter, index.identity.fields)
        if body.dry_run:
            return DeleteOut(deleted=await many.count(index, where))
        deleted = 0
        async for some in many.matching(index, where):
            deleted += await store.delete_seen(name, index.identity.uid, some)
    return DeleteOut(deleted=deleted)
