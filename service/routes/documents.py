"""/indexes/{name}/documents: upsert, get, list and delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.documents.embedder import Embedded
from service.edge import deadline, rights
from service.edge.errors import ApiError, documented
from service.index import fields
from service.index.faults import NotFoundError
from service.routes import inference
from service.routes.encoding import json_response
from service.routes.fields import TEXT, valid_text
from service.routes.names import Identifier, Name, optional_text
from service.tracing.stages import Stage

router = APIRouter(
    prefix="/indexes/{name}/documents",
    tags=["index"],
    dependencies=[Depends(rights.of_index)],
)

Scalar = str | bool | int | Annotated[float, Field(allow_inf_nan=False)] | None
Metadata = dict[Annotated[str, Field(min_length=1, max_length=64)], Scalar]


class DocumentIn(BaseModel):
    """A document to keep. What is left out is empty: an upsert replaces the whole document."""

    model_config = ConfigDict(strict=True)

    id: Identifier
    text: Annotated[str, BeforeValidator(valid_text), TEXT] = Field(description="of any length")
    title: Annotated[str | None, BeforeValidator(optional_text)] = None
    metadata: Metadata = Field(default_factory=dict, max_length=64)
    links: list[Identifier] = Field(
        default_factory=list, max_length=10_000, description="ids of the documents that it cites"
    )


class UpsertRequest(BaseModel):
    """Documents to insert, or to replace where their id is there."""

    model_config = ConfigDict(strict=True)

    documents: list[DocumentIn] = Field(min_length=1)
    force: bool = Field(
        False, description="embed every text anew: take no vector from the index or a cache"
    )


class UpsertOut(BaseModel):
    """All of them are durable."""

    upserted: int


class DocumentHead(BaseModel):
    """A document without its text."""

    id: str
    title: str | None
    metadata: dict[str, Any]


class DocumentOut(DocumentHead):
    """A document as it was given."""

    text: str
    links: list[str]


class PageOut(BaseModel):
    """Documents in the order of their ids."""

    documents: list[DocumentHead]
    next: str | None = Field(description="`after` of the next page; null on the last")


_UPSERT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Durable.", "model": UpsertOut},
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503),
}
_ID = Path(description="the document's id; it may contain slashes", min_length=1, max_length=512)


@router.post("", responses=_UPSERT, response_model=None, response_class=Response)
async def upsert_documents(request: Request, name: Name, body: UpsertRequest) -> Response:
    """Embed documents and keep them. The answer comes when they are durable.

    A document that is there with the same text keeps its vectors: nothing is computed for it,
    unless `force` is true.
    """
    service = inference.service_of(request)
    documents = body.documents
    ids = [document.id for document in documents]
    if len(set(ids)) < len(ids):
        raise ApiError(422, "documents: the same id stands there twice", param="documents")
    async with deadline.within(request):
        index = await (await service.store.indexes()).writable(name)
        for position, document in enumerate(documents):
            fields.check(index.identity.fields, document.metadata, position)
        from service.index.record import encoded, record
        from service.index.reuse import kept

        held = {} if body.force else {document.id: document.text for document in documents}
        known = await kept(index, held)
    changed = [document for document in documents if document.id not in known]
    result = Embedded([])
    if changed:
        texts = [document.text for document in changed]
        result = await inference.embed(request, texts, fresh=body.force)
    for document, embedded in zip(changed, result.documents, strict=True):
        known[document.id] = encoded(embedded)
    async with deadline.within(request):
        records = [record(document, known[document.id]) for document in documents]
        with Stage("commit") as stage:
            stage.note({"docsplit.documents": len(records)})
            await service.store.upsert(name, index.identity.uid, records)
    return json_response({"upserted": len(ids)}, inference.headers(request, result))


@router.get("", responses=documented(401, 404, 409, 422, 503))
async def list_documents(
    request: Request,
    name: Name,
    after: Annotated[str, Query(max_length=512)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> PageOut:
    """Documents in the order of their ids, a page at a time."""
    async with deadline.within(request):
        index = await (await inference.service_of(request).store.indexes()).open(name)
        rows = await index.page(after, limit)
    heads = [DocumentHead(**row) for row in rows]
    return PageOut(documents=heads, next=heads[-1].id if len(heads) == limit else None)


@router.get("/{document_id:path}", responses=documented(401, 404, 409, 422, 503))
async def get_document(
    request: Request, name: Name, document_id: Annotated[str, _ID]
) -> DocumentOut:
    """One document as it was given."""
    async with deadline.within(request):
        index = await (await inference.service_of(request).store.indexes()).open(name)
        found = await index.get(document_id)
    return DocumentOut(
        id=found.id,
        title=found.title,
        metadata=found.metadata,
        text=found.text,
        links=found.links,
    )


@router.delete(
    "/{document_id:path}", status_code=204, responses=documented(401, 404, 409, 422, 503)
)
async def delete_document(request: Request, name: Name, document_id: Annotated[str, _ID]) -> None:
    """Delete one document; durable when acknowledged."""
    service = inference.service_of(request)
    async with deadline.within(request):
        indexes = await service.store.indexes()
        index = await indexes.writable(name)
        if not await index.has(document_id) and not await indexes.holds(name, document_id):
            raise NotFoundError("no document of that id in this index")
        await service.store.delete(name, index.identity.uid, [document_id])
