"""/indexes/{name}/duplicates: near-duplicates of a document, and all groups of them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from service.server.bodies.encoding import json_response, stored_object
from service.server.bodies.fields import Name, QueryIn, Span
from service.server.edge import rights
from service.server.edge.errors import written
from service.server.routes import inference
from service.server.routes.stored.documents import THRESHOLD
from service.server.routes.turns import Turn

router = rights.below_index("/duplicates", rights.to_read_index)

# documents listed of each group
MEMBERS = 1000
SCANS = Turn("scans for duplicates")

Threshold = Annotated[float, Field(ge=0.1, le=1)]


class DuplicatesRequest(QueryIn):
    """A document to compare with those of the index."""

    threshold: Threshold = Field(THRESHOLD, description="lowest resemblance")
    top_k: int = Field(10, ge=1, le=50)


class MatchOut(BaseModel):
    """A near-duplicate."""

    id: str
    resemblance: float = Field(
        description="share of the words and pairs of words of either document that both have"
    )
    containment: float = Field(description="share of the shorter document's that the other has")
    cosine: float
    title: str | None
    metadata: dict[str, Any]
    differs: list[Span] = Field(
        description="windows of this document of whose words the other one lacks over a fifth"
    )


class GroupOut(BaseModel):
    """Documents that near-duplicates connect."""

    size: int
    ids: list[str] = Field(description="the first 1,000 in the order of ids")
    resemblance: float = Field(description="of the least similar pair that connects them")


class GroupsOut(BaseModel):
    """Groups of near-duplicates, the largest first."""

    documents: int = Field(description="documents in all groups")
    groups_found: int
    groups: list[GroupOut]


_STATUSES = (400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503)


@router.post("", **written(list[MatchOut], *_STATUSES))
async def find_duplicates(request: Request, name: Name, body: DuplicatesRequest) -> Response:
    """Documents of the index that share most of their words with a text or a document of it."""
    index = await inference.open_index(request, name)
    from service.index.query import duplicates

    query, headers = await inference.query(request, index, body)
    found = await duplicates.like(index, query, body.threshold, body.top_k)
    content = [
        {
            "id": match.hit.id,
            "resemblance": match.resemblance,
            "containment": match.containment,
            "cosine": match.hit.cosine,
            "title": match.hit.title,
            "metadata": stored_object(match.hit.metadata or "{}"),
            "differs": [{"start": start, "end": end} for start, end in match.differs],
        }
        for match in found
    ]
    return json_response(content, headers)


@router.get("", **written(GroupsOut, 401, 404, 409, 422, 429, 503))
async def list_duplicates(
    request: Request,
    name: Name,
    threshold: Annotated[float, Query(ge=0.1, le=1)] = THRESHOLD,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Groups of near-duplicates in the whole index. It reads every text: send a long deadline."""
    service = inference.service_of(request)
    async with SCANS.taken():
        index = await (await service.store.indexes()).open(name)
        from service.index.query import duplicates

        groups = await duplicates.groups(index, threshold)
    content = {
        "documents": sum(len(group.ids) for group in groups),
        "groups_found": len(groups),
        "groups": [
            {"size": len(group.ids), "ids": group.ids[:MEMBERS], "resemblance": group.lowest}
            for group in groups[:limit]
        ],
    }
    return json_response(content)
