"""/indexes/{name}/documents: upsert, get, list and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from service.embedding.cache import layers
from service.embedding.embedder import Embedded
from service.errors import InvalidError, NotFoundError, VersionError
from service.index.rows import fields
from service.keys.file import Right
from service.server.bodies.conditions import (
    MISMATCH,
    UNCHANGED,
    IfChanged,
    IfMatch,
    IfNoneMatch,
    conditions,
    mismatch,
    of_stored,
    unchanged,
)
from service.server.bodies.document_bodies import (
    MOST_MATCHES,
    THRESHOLD,
    DocumentOut,
    PageOut,
    UpsertOut,
    UpsertRequest,
    duplicates_refused,
)
from service.server.bodies.encoding import json_response, stored_object
from service.server.bodies.large import BodyRoute
from service.server.bodies.names import DocumentId, Name
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.routes import inference
from service.tracing.stages import Stage

if TYPE_CHECKING:
    from service.index.documents import Index
    from service.index.rows.record import Encoding

router = APIRouter(
    route_class=BodyRoute,
    prefix="/indexes/{name}/documents",
    tags=["index"],
    dependencies=[Depends(rights.of_index)],
)

_READ = documented(401, 404, 409, 422, 429, 503)
_UPSERT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Durable.", "model": UpsertOut},
    **MISMATCH,
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503),
}
_PAGE: dict[int | str, dict[str, Any]] = {200: {"model": PageOut}, **_READ}
_DOCUMENT: dict[int | str, dict[str, Any]] = {200: {"model": DocumentOut}, **UNCHANGED, **_READ}


@router.post("", responses=_UPSERT, response_model=None, response_class=Response)
async def upsert_documents(
    request: Request,
    name: Name,
    body: UpsertRequest,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Embed documents and store them. The answer comes when they are durable.

    A document with an unchanged text keeps its vectors: the service computes nothing for it,
    unless `force` is true.
    """
    service = inference.service_of(request)
    documents = body.documents
    inference.check_count(service, len(documents))
    ids = [document.id for document in documents]
    if len(set(ids)) < len(ids):
        raise InvalidError("documents: two documents have the same id: send each once", "documents")
    if body.on_duplicate != "allow":
        # the answer reveals what the index holds
        rights.require(request, Right.READ_INDEXES, name)
    wanted = conditions(documents, if_match, if_none_match)
    try:
        async with deadline.within(request):
            indexes = await service.store.indexes()
            # only a complete generation knows the versions of documents
            opening = indexes.open if wanted else indexes.writable
            index = await opening(name, still=True)
            for position, document in enumerate(documents):
                fields.check(index.identity.fields, document.metadata, position)
            from service.index import commits
            from service.index.rows.record import record

            if wanted and (error := commits.check(wanted, await index.standing(list(wanted)))):
                raise error
        known, result = await _encodings(request, index, body)
        async with deadline.within(request):
            near = await _near(index, body, known)
            if near and body.on_duplicate == "refuse":
                return duplicates_refused(near)
            records = [record(document, known[document.id]) for document in documents]
            with Stage("commit") as stage:
                stage.note({"docsplit.documents": len(records)})
                # a value that the index cannot store fails only this request
                upsert = commits.Upsert(await index.rows(records), wanted)
                held = await service.store.upsert(name, index.identity.uid, upsert)
    except VersionError as error:
        return mismatch(error, ids, wanted)
    from service.index.rows import versions

    content: dict[str, Any] = {
        "upserted": len(ids),
        "versions": [versions.text(held[one]) for one in ids],
    }
    if body.on_duplicate == "mark":
        content["duplicates"] = near
    return json_response(content, inference.headers(request, result))


async def _near(
    index: Index, body: UpsertRequest, known: dict[str, Encoding]
) -> list[dict[str, Any]]:
    """Near-duplicates in the index, by position, if the request asks for them."""
    if body.on_duplicate == "allow":
        return []
    from service.index.query.duplicates import Held, like
    from service.index.query.reading import Query
    from service.index.storage.database import refresh

    # embedding may have taken a while
    await refresh(index.table)
    found = []
    held = Held()
    for position, one in enumerate(body.documents):
        query = Query(known[one.id].vector, one.text, one.id)
        if matches := await like(index, query, THRESHOLD, MOST_MATCHES, held):
            pairs = [{"id": m.hit.id, "resemblance": m.resemblance} for m in matches]
            found.append({"position": position, "duplicates": pairs})
    return found


async def _encodings(
    request: Request, index: Index, body: UpsertRequest
) -> tuple[dict[str, Encoding], Embedded]:
    """Encodings of all documents by id, and the newly computed documents."""
    from service.index.reuse import kept
    from service.index.rows.record import encoded

    async with deadline.within(request):
        stored = {} if body.force else {one.id: one.text for one in body.documents}
        known = await kept(index, stored)
    places = [place for place, one in enumerate(body.documents) if one.id not in known]
    changed = [body.documents[place] for place in places]
    result = Embedded([])
    if changed:
        with layers.stored(), inference.naming(lambda at: f"documents.{places[at]}.text"):
            texts = [document.text for document in changed]
            encoder = inference.encoder_of_index(request, index)
            result = await inference.embed(request, texts, fresh=body.force, encoder=encoder)
    for document, embedded in zip(changed, result.documents, strict=True):
        known[document.id] = encoded(embedded)
    return known, result


@router.get("", responses=_PAGE, response_model=None, response_class=Response)
async def list_documents(
    request: Request,
    name: Name,
    after: Annotated[str, Query(max_length=512)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Documents in the order of their ids, one page at a time."""
    async with deadline.within(request):
        index = await (await inference.service_of(request).store.indexes()).open(name, still=True)
        from service.index.query import listing
        from service.index.rows import versions

        page = await listing.page(index, after, limit)

    heads = [
        {
            "id": head.id,
            "title": head.title,
            "metadata": stored_object(head.metadata),
            "version": versions.text(head.updated),
        }
        for head in page.heads
    ]
    return json_response({"documents": heads, "next": page.next})


@router.get(
    "/{document_id:path}", responses=_DOCUMENT, response_model=None, response_class=Response
)
async def get_document(
    request: Request, name: Name, document_id: DocumentId, if_none_match: IfChanged = None
) -> Response:
    """One document as the client sent it; the header `ETag` also has its version."""
    async with deadline.within(request):
        index = await (await inference.service_of(request).store.indexes()).open(name, still=True)
        await inference.reserve(request, index, document_id)
        found = await index.get(document_id)
    from service.index.rows import versions

    version = versions.text(found.updated)
    headers = {"etag": f'"{version}"'}
    if unchanged(if_none_match, version):
        return Response(status_code=304, headers=headers)
    content = {
        "id": found.id,
        "title": found.title,
        "metadata": stored_object(found.metadata),
        "version": version,
        "text": found.text,
        "links": found.links,
    }
    return json_response(content, headers)


@router.delete(
    "/{document_id:path}",
    status_code=204,
    responses=MISMATCH | _READ,
    response_model=None,
    response_class=Response,
)
async def delete_document(
    request: Request, name: Name, document_id: DocumentId, if_match: IfMatch = None
) -> Response:
    """Delete one document; the deletion is durable when acknowledged."""
    service = inference.service_of(request)
    condition = of_stored(request, if_match)
    async with deadline.within(request):
        indexes = await service.store.indexes()
        index = await indexes.writable(name, still=True)
        if not await index.has(document_id) and not await indexes.holds(name, document_id):
            raise NotFoundError("no document in this index has that id")
        try:
            await service.store.delete(name, index.identity.uid, [document_id], condition)
        except VersionError as error:
            return mismatch(error, [document_id])
    return Response(status_code=204)
