"""GET /indexes/{name}/links/missing: citations that seem missing."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from service.server.bodies.encoding import json_response
from service.server.bodies.fields import Name, Source
from service.server.edge import deadline, rights
from service.server.edge.errors import written
from service.server.routes import inference
from service.server.routes.citation import open_citing
from service.server.routes.stored.links import PlaceOut, place
from service.server.routes.turns import Turn

if TYPE_CHECKING:
    from service.learning.citations import Missing

router = rights.below_index("/links/missing")

SEARCHES = Turn("searches for missing citations")
# share of a request's time in which it begins to read documents
_SHARE = 0.5


class MissingOut(BaseModel):
    """A pair of documents without a link, though the first one seems to cite the second one."""

    citing: str = Field(description="id of the document that seems to cite the other one")
    citing_title: str | None
    cited: str = Field(description="id of the other one")
    cited_title: str | None
    link_probability: float
    cosine: float
    place: PlaceOut | None = Field(
        description="where the citing text first names the other document by its id or title; "
        "null if it does not"
    )


class MissingPageOut(BaseModel):
    """Missing citations of some documents, the likeliest first."""

    citations: list[MissingOut]
    documents: int = Field(description="documents that were read, in the order of their ids")
    next: str | None = Field(description="`after` of the next page; null on the last")


@router.get("", **written(MissingPageOut, 401, 404, 408, 409, 422, 429, 503))
async def list_missing_citations(
    request: Request,
    name: Name,
    after: Annotated[str, Query(max_length=512)] = "",
    documents: Annotated[int, Query(ge=1, le=100)] = 20,
    threshold: Annotated[float, Query(ge=0, le=1)] = 0.7,
    links: Source = "both",
) -> Response:
    """Pairs that the citation head finds likely but that no link connects.

    Each call reads some documents, and fewer if its time does not suffice.
    """
    service = inference.service_of(request)
    async with SEARCHES.taken():
        indexes = await service.store.indexes()
        index, head = await open_citing(request, name)
        from service.index.link_graph import Graph
        from service.learning import citations

        graph = Graph(index, indexes.found_links, links)
        counted = replace(graph, source=head.report.get("links_from", "given"))
        now = time.monotonic()
        until = now + _SHARE * (deadline.of(request) - now)
        page = await citations.missing(
            graph, head.network, counted, after, documents, threshold, until
        )
    return json_response(
        {
            "citations": [_pair(pair) for pair in page.citations],
            "documents": page.documents,
            "next": page.next,
        }
    )


def _pair(pair: Missing) -> dict[str, Any]:
    own = pair.place
    return {
        "citing": pair.citing.id,
        "citing_title": pair.citing.title,
        "cited": pair.cited.id,
        "cited_title": pair.cited.title,
        "link_probability": pair.cited.score,
        "cosine": pair.cited.cosine,
        "place": own and place(own.start, own.end, not own.form, own.form),
    }
