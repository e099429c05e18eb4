"""Windows of stored documents: those of one, and those that make two documents resemble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from service import executors
from service.server.bodies.encoding import json_response
from service.server.bodies.large import BodyRoute
from service.server.bodies.names import DocumentId, Identifier, Name
from service.server.bodies.similar_bodies import Place, QueryIn
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.routes import inference
from service.server.routes.stored import documents

if TYPE_CHECKING:
    from docsplit.windowing.pooling import Vectors
    from service.index.documents import Index
    from service.index.rows.record import Windows

router = APIRouter(
    route_class=BodyRoute,
    prefix="/indexes/{name}",
    tags=["index"],
    dependencies=[Depends(rights.to_read_index)],
)


class WindowsOut(BaseModel):
    """The windows of a document; joined, they are its text."""

    windows: list[Place]


class CompareRequest(QueryIn):
    """Two documents, of which at least one is stored."""

    other: Identifier = Field(description="a document of the index")
    top_k: int = Field(10, ge=1, le=50, description="most pairs of windows")


class ComparedOut(BaseModel):
    """Two windows that resemble each other."""

    cosine: float
    query: Place
    document: Place


class CompareOut(BaseModel):
    """How much two documents resemble each other, and where."""

    cosine: float = Field(description="of the two documents' vectors, not adapted")
    pairs: list[ComparedOut] = Field(description="highest cosine first; no window occurs twice")


_WINDOWS: dict[int | str, dict[str, Any]] = {
    200: {"model": WindowsOut},
    **documented(401, 404, 409, 422, 429, 503),
}
_COMPARED: dict[int | str, dict[str, Any]] = {
    200: {"model": CompareOut},
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503),
}


@router.get(
    "/documents/{document_id:path}/windows",
    responses=_WINDOWS,
    response_model=None,
    response_class=Response,
)
async def list_windows(request: Request, name: Name, document_id: DocumentId) -> Response:
    """The windows of a document, with the page and the heading where each begins.

    If the id of a document ends in `/windows`, its path gives the document itself.
    """
    async with deadline.within(request):
        index = await (await inference.service_of(request).store.indexes()).open(name, still=True)
        from service.index import reuse

        there = await index.has(f"{document_id}/windows")
        found = None if there else await reuse.windows_of(index, document_id)
    if found is None:
        return await documents.get_document(request, name, f"{document_id}/windows")
    return json_response({"windows": [found.place(i) for i in range(len(found.ends))]})


@router.post("/compare", responses=_COMPARED, response_model=None, response_class=Response)
async def compare(request: Request, name: Name, body: CompareRequest) -> Response:
    """The windows that make a text or a document resemble a document of the index most."""
    async with deadline.within(request):
        index = await (await inference.service_of(request).store.indexes()).open(name, still=True)
        from service.index import reuse
        from service.index.query import pairs, search

        other = (await search.stored(index, body.other, text=False)).vector
        windows = await reuse.windows_of(index, body.other)
        vector, own, headers = await _query(request, index, body)
        found = await executors.SCORING.run(pairs.best, own, windows, body.top_k)
    content = {
        "cosine": min(float(vector @ other), 1.0),
        "pairs": [
            {
                "cosine": pair.cosine,
                "query": own.place(pair.query),
                "document": windows.place(pair.document),
            }
            for pair in found
        ],
    }
    return json_response(content, headers)


async def _query(
    request: Request, index: Index, body: CompareRequest
) -> tuple[Vectors, Windows, dict[str, str]]:
    """The vector and the windows of a text or a stored document, and headers of the answer."""
    from service.index import reuse
    from service.index.query import search
    from service.index.rows.record import Windows, encoded

    if body.id is not None:
        query = await search.stored(index, body.id, text=False)
        return query.vector, await reuse.windows_of(index, body.id), {}
    encoder = inference.encoder_of_index(request, index)
    with inference.naming(lambda _: "text"):
        result = await inference.embed(request, [body.text or ""], encoder=encoder)
    encoding = encoded(result.documents[0])
    windows = Windows(encoding.windows, encoding.ends)
    return encoding.vector, windows, inference.headers(request, result)
