"""/indexes: create, describe, list and delete indexes of documents."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.edge import deadline
from service.edge.errors import documented
from service.index.faults import NotFoundError
from service.index.fields import FieldType
from service.routes import inference
from service.routes.names import Name

router = APIRouter(prefix="/indexes", tags=["index"])

FieldName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,62}$")]

ERRORS = documented(400, 401, 404, 408, 409, 413, 415, 422, 503)


class IndexRequest(BaseModel):
    """What an index is created with."""

    model_config = ConfigDict(strict=True)

    fields: dict[FieldName, FieldType] = Field(
        default_factory=dict,
        max_length=64,
        description="metadata that filters may name, with its type; other metadata is kept too",
    )


class IndexOut(BaseModel):
    """An index."""

    name: str
    documents: int
    model: str
    revision: str
    current: bool = Field(description="whether the served bundle wrote it; if not, it is refused")
    fields: dict[str, FieldType]


class IndexesOut(BaseModel):
    """The names of all."""

    indexes: list[str]


_PUT: dict[int | str, dict[str, Any]] = {
    200: {"description": "It was there already, with the same fields."},
    201: {"model": IndexOut, "description": "Created."},
    **ERRORS,
}


@router.put("/{name}", responses=_PUT)
async def create_index(
    request: Request, response: Response, name: Name, body: IndexRequest
) -> IndexOut:
    """Create an index, or find it there with the same fields."""
    async with deadline.within(request):
        indexes = await inference.service_of(request).store.indexes()
        response.status_code = 201 if await indexes.create(name, body.fields) else 200
    return await describe_index(request, name)


@router.get("", responses=documented(401, 422, 503))
async def list_indexes(request: Request) -> IndexesOut:
    """Names of all indexes."""
    async with deadline.within(request):
        indexes = await inference.service_of(request).store.indexes()
        return IndexesOut(indexes=await indexes.names())


@router.get("/{name}", responses=documented(401, 404, 409, 422, 503))
async def describe_index(request: Request, name: Name) -> IndexOut:
    """How many documents an index holds, of which model, with which fields."""
    service = inference.service_of(request)
    async with deadline.within(request):
        identity, documents = await (await service.store.indexes()).describe(name)
    return IndexOut(
        name=name,
        documents=documents,
        model=identity.model,
        revision=identity.revision,
        current=identity.revision == service.bundle.manifest.revision,
        fields=identity.fields,
    )


@router.delete("/{name}", status_code=204, responses=documented(401, 404, 409, 422, 503))
async def delete_index(request: Request, name: Name) -> None:
    """Delete an index with all its documents."""
    async with deadline.within(request):
        store = inference.service_of(request).store
        indexes = await store.indexes()
        identity, _ = await indexes.describe(name)
        await indexes.drop(name)
        with suppress(NotFoundError):
            await (await store.citation_heads()).delete(identity.uid)
