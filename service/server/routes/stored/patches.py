"""PATCH /indexes/{name}/documents/{document_id}: change a document without its text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, model_validator

from service.errors import InvalidError, OvertakenError, VersionError
from service.index.rows import fields, versions
from service.server.bodies.body import Body
from service.server.bodies.conditions import MISMATCH, IfMatch, mismatch, of_stored
from service.server.bodies.document_bodies import Metadata, Title
from service.server.bodies.encoding import json_response
from service.server.bodies.large import BodyRoute
from service.server.bodies.names import DocumentId, Identifier, Name
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.routes import inference

if TYPE_CHECKING:
    from service.index.documents import Index
    from service.index.rows.record import Record
    from service.server.lifecycle import Service

router = APIRouter(
    route_class=BodyRoute,
    prefix="/indexes/{name}/documents",
    tags=["index"],
    dependencies=[Depends(rights.of_index)],
)


class PatchRequest(Body):
    """A JSON merge patch (RFC 7396): null removes a member, an omitted member stays."""

    title: Title = Field(None, json_schema_extra={"maxLength": fields.TITLE_CHARACTERS})
    metadata: Metadata | None = Field(None, description="null removes all keys")
    links: list[Identifier] | None = Field(
        None, max_length=10_000, fail_fast=True, description="replaces all links"
    )

    @model_validator(mode="before")
    @classmethod
    def _no_text(cls, value: Any) -> Any:
        if isinstance(value, dict) and "text" in value:
            raise ValueError("text: this route does not change texts: upsert the document")
        return value


class PatchOut(BaseModel):
    """The change is durable."""

    version: str = Field(description="the document's new version")


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Durable.", "model": PatchOut},
    **MISMATCH,
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 503),
}


@router.patch(
    "/{document_id:path}", responses=_ANSWERS, response_model=None, response_class=Response
)
async def patch_document(
    request: Request,
    name: Name,
    document_id: DocumentId,
    body: PatchRequest,
    if_match: IfMatch = None,
) -> Response:
    """Change the title, metadata or links of a document. The service embeds nothing."""
    condition = of_stored(request, if_match)
    service = inference.service_of(request)
    async with deadline.within(request):
        indexes = await service.store.indexes()
        from service.index.reuse import whole

        for _ in range(versions.ATTEMPTS):
            index = await indexes.open(name, still=True)
            await inference.reserve(request, index, document_id)
            record, updated = await whole(index, document_id)
            standing = versions.Standing(updated, deleted=False)
            if condition is not None and not versions.holds(condition, standing):
                return mismatch(VersionError({document_id: updated}), [document_id])
            written = await _write(service, name, index, _patched(index, record, body), updated)
            if written is not None:
                version = versions.text(written)
                return json_response({"version": version}, {"etag": f'"{version}"'})
    raise OvertakenError


def _patched(index: Index, record: Record, body: PatchRequest) -> Record:
    """The document after the change.

    Raises:
        InvalidError: the index cannot store it.
    """
    given = body.model_fields_set
    metadata = record.metadata
    if "metadata" in given:
        metadata = _merged(metadata, body.metadata)
        if wrong := fields.problem(metadata):
            raise InvalidError(f"metadata, after the change: {wrong}", "metadata")
        if wrong := fields.mistyped(index.identity.fields, metadata):
            raise InvalidError(wrong, "metadata")
    return replace(
        record,
        title=body.title if "title" in given else record.title,
        metadata=metadata,
        links=(body.links or []) if "links" in given else record.links,
    )


def _merged(metadata: dict[str, Any], patch: dict[str, Any] | None) -> dict[str, Any]:
    if patch is None:
        return {}
    removed = {key for key, value in patch.items() if value is None}
    return {key: value for key, value in (metadata | patch).items() if key not in removed}


async def _write(
    service: Service, name: str, index: Index, record: Record, updated: int
) -> int | None:
    """Write the document over the version that was read.

    Returns:
        The new version; None if another client wrote in between.
    """
    from service.index.commits import Upsert

    upsert = Upsert(await index.rows([record]), {record.id: frozenset([updated])})
    try:
        return (await service.store.upsert(name, index.identity.uid, upsert))[record.id]
    except VersionError:
        return None
