"""POST /similar: documents of an index that resemble a text or another document of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from service.errors import DamagedError
from service.index.query.filters import Filter, compile_filter
from service.index.rows.record import Windows
from service.keys.rights import Right
from service.server.bodies.encoding import json_response, stored_object
from service.server.bodies.fields import TEXT
from service.server.bodies.names import INDEX_NAME, Identifier, optional_text
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.edge.large_bodies import BodyRoute
from service.server.routes import inference
from service.server.routes.citation import citation_head
from service.tracing.stages import Stage
from windowing.pooling import normalise

if TYPE_CHECKING:
    from service.index.documents import Index
    from service.index.query.search import Hit, Query

router = APIRouter(route_class=BodyRoute, tags=["index"])

PAIRS = 3


class SimilarRequest(BaseModel):
    """The query and its options."""

    model_config = ConfigDict(strict=True)

    index: Annotated[str, Field(pattern=INDEX_NAME)]
    text: Annotated[str | None, BeforeValidator(optional_text), TEXT] = Field(
        None, description="a document of any length; or give id"
    )
    id: Identifier | None = Field(None, description="a document of the index; it is left out")
    top_k: int = Field(10, ge=1, le=1000)
    mode: Literal["cosine", "words", "hybrid", "citation"] = "cosine"
    direction: Literal["cites", "cited_by"] | None = Field(
        None, description="only in the mode citation: what the text cites, or what cites it"
    )
    filter: Filter | None = Field(None, description="see docs/reference/api.md")
    adapt: bool = Field(
        True, description="in the modes cosine and hybrid: adapt the cosine to the index"
    )
    explain: bool = Field(False, description="show the windows that resemble each other most")

    @model_validator(mode="after")
    def _text_or_id(self) -> SimilarRequest:
        if (self.text is None) == (self.id is None):
            raise ValueError("give either text or id")
        if self.direction is not None and self.mode != "citation":
            raise ValueError("direction: use it only with the mode citation")
        return self


class Span(BaseModel):
    """Characters of a document, counted in Unicode code points."""

    start: int
    end: int


class PairOut(BaseModel):
    """Two windows that resemble each other."""

    cosine: float
    query: Span
    document: Span


class HitOut(BaseModel):
    """A document that the search found."""

    id: str
    score: float = Field(description="the mode's ranking score")
    cosine: float = Field(description="of the two vectors, not adapted")
    title: str | None
    metadata: dict[str, Any]
    link_probability: float | None = Field(None, description="in the mode citation")
    direction: Literal["cites", "cited_by"] | None = Field(
        None, description="whether the query cites the document, or the document cites the query"
    )
    pairs: list[PairOut] | None = None


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Highest score first.", "model": list[HitOut]},
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503),
}


@router.post("/similar", responses=_ANSWERS, response_model=None, response_class=Response)
async def similar(request: Request, body: SimilarRequest) -> Response:
    """Documents that resemble a text or a document of the index, which is left out."""
    service = inference.service_of(request)
    rights.require(request, Right.READ_INDEXES, body.index)
    async with deadline.within(request):
        index = await (await service.store.indexes()).open(body.index)
        where = compile_filter(body.filter, index.identity.fields) if body.filter else None
        head = await citation_head(request, index, body.index) if body.mode == "citation" else None
        query, windows, headers = await _query(request, body, index)
        from service.index.query import search
        from service.learning.citing import citation

        with Stage("search") as stage:
            if head is not None:
                hits = await citation(index, query, body.top_k, where, head.network, body.direction)
            else:
                if body.adapt and body.mode != "words":
                    profile = await service.store.profile(body.index, index)
                    query = replace(query, profile=profile)
                run = {"cosine": search.cosine, "words": search.words, "hybrid": search.hybrid}[
                    body.mode
                ]
                hits = await run(index, query, body.top_k, where)
            stage.note({"docsplit.mode": body.mode, "docsplit.hits": len(hits)})
        service.metrics.index_search_seconds.labels(body.mode).observe(stage.seconds)
        content = [_hit(hit) for hit in hits]
        if windows is not None:
            await _explain(index, windows, content)
    return json_response(content, headers)


async def _query(
    request: Request, body: SimilarRequest, index: Index
) -> tuple[Query, Windows | None, dict[str, str]]:
    """The query, its windows if the request asks for them, and headers of the answer."""
    from service.index.query.search import Query, stored

    if body.id is not None:
        query = await stored(index, body.id)
        windows = (await index.windows([body.id])).get(body.id) if body.explain else None
        if body.explain and windows is None:
            raise DamagedError
        return query, windows, {}
    text = body.text or ""
    result = await inference.embed(request, [text])
    document = result.documents[0]
    ends = [window.end for window in document.windows]
    windows = Windows(document.matrix(), ends) if body.explain else None
    query = Query(normalise(document.vector()), text)
    return query, windows, inference.headers(request, result)


def _hit(hit: Hit) -> dict[str, Any]:
    content = {
        "id": hit.id,
        "score": hit.score,
        "cosine": hit.cosine,
        "title": hit.title,
        "metadata": stored_object(hit.metadata or "{}"),
    }
    if hit.direction is not None:
        content |= {"link_probability": hit.score, "direction": hit.direction}
    return content


async def _explain(index: Index, query: Windows, content: list[dict[str, Any]]) -> None:
    from service.index.query import pairs

    stored = await index.windows([hit["id"] for hit in content])
    for hit in content:
        # absent if its windows are damaged, or if it was deleted between the two reads
        document = stored.get(hit["id"])
        hit["pairs"] = document and [
            {
                "cosine": pair.cosine,
                "query": query.span(pair.query),
                "document": document.span(pair.document),
            }
            for pair in pairs.best(query, document, PAIRS)
        ]
