"""POST /similar: documents of an index that resemble a text or another document of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from service.embedding.embedder import Document, UnusableInputError
from service.errors import DamagedError, NotFoundError
from service.index.query.filters import Filter, compile_filter
from service.index.rows.record import Windows
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
MOST_QUERIES = 100
# hits of one answer
MOST_HITS = 1000
# ranked documents of one request: of each query those that offset leaves out count, too
MOST_RANKED = 10_000


class QueryIn(BaseModel):
    """One of several queries."""

    model_config = ConfigDict(strict=True)

    text: Annotated[str | None, BeforeValidator(optional_text), TEXT] = Field(
        None, description="a document of any length; or give id"
    )
    id: Identifier | None = Field(None, description="a document of the index; it is left out")

    @model_validator(mode="after")
    def _text_or_id(self) -> QueryIn:
        if (self.text is None) == (self.id is None):
            raise ValueError("give either text or id")
        return self


class SimilarRequest(BaseModel):
    """The query and its options."""

    model_config = ConfigDict(strict=True)

    index: Annotated[str, Field(pattern=INDEX_NAME)]
    text: Annotated[str | None, BeforeValidator(optional_text), TEXT] = Field(
        None, description="a document of any length; or give id"
    )
    id: Identifier | None = Field(None, description="a document of the index; it is left out")
    queries: list[QueryIn] | None = Field(
        None,
        min_length=1,
        max_length=MOST_QUERIES,
        fail_fast=True,
        description="several queries in place of text or id; all other fields apply to each",
    )
    top_k: int = Field(10, ge=1, le=MOST_HITS)
    offset: int = Field(0, ge=0, lt=MOST_RANKED, description="number of first hits to leave out")
    exclude: list[Identifier] = Field(
        default_factory=list,
        max_length=1000,
        fail_fast=True,
        description="documents to leave out",
    )
    mode: Literal["cosine", "words", "hybrid", "citation"] = "cosine"
    direction: Literal["cites", "cited_by"] | None = Field(
        None, description="only in the mode citation: what the text cites, or what cites it"
    )
    filter: Filter | None = Field(None, description="see docs/reference/api.md")
    explain: bool = Field(False, description="show the windows that resemble each other most")

    @model_validator(mode="after")
    def _one_query_or_several(self) -> SimilarRequest:
        if [self.text, self.id, self.queries].count(None) != 2:
            raise ValueError("give either text or id, or else queries")
        several = len(self.queries or [None])
        if several * self.top_k > MOST_HITS:
            raise ValueError(f"the number of queries times top_k is at most {MOST_HITS}")
        if several * (self.offset + self.top_k) > MOST_RANKED:
            raise ValueError(
                f"the number of queries times the sum of offset and top_k is at most {MOST_RANKED}"
            )
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
    cosine: float
    title: str | None
    metadata: dict[str, Any]
    link_probability: float | None = Field(None, description="in the mode citation")
    direction: Literal["cites", "cited_by"] | None = Field(
        None, description="whether the query cites the document, or the document cites the query"
    )
    pairs: list[PairOut] | None = None


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Highest score first; with `queries` one list for each, in their order.",
        "model": list[HitOut] | list[list[HitOut]],
    },
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503),
}


@router.post("/similar", responses=_ANSWERS, response_model=None, response_class=Response)
async def similar(request: Request, body: SimilarRequest) -> Response:
    """Documents that resemble a text or a document of the index, which is left out."""
    service = inference.service_of(request)
    name = await rights.readable(request, body.index)
    async with deadline.within(request):
        index = await (await service.store.indexes()).open(name)
        where = compile_filter(body.filter, index.identity.fields) if body.filter else None
        head = await citation_head(request, index, name) if body.mode == "citation" else None
        texts, headers = await _embedded(request, body)
        from service.index.query import search
        from service.learning.citing import citation

        answers = []
        limit = body.offset + body.top_k
        for place in range(len(body.queries or [None])):
            query, windows = await _query(body, place, texts.get(place), index)
            with Stage("search") as stage:
                if head is not None:
                    hits = await citation(index, query, limit, where, head.network, body.direction)
                else:
                    run = {"cosine": search.cosine, "words": search.words, "hybrid": search.hybrid}[
                        body.mode
                    ]
                    hits = await run(index, query, limit, where)
                stage.note({"docsplit.mode": body.mode, "docsplit.hits": len(hits)})
            service.metrics.index_search_seconds.labels(body.mode).observe(stage.seconds)
            content = [_hit(hit) for hit in hits]
            if windows is not None:
                await _explain(index, windows, content)
            answers.append(content)
    return json_response(answers[0] if body.queries is None else answers, headers)


async def _embedded(
    request: Request, body: SimilarRequest
) -> tuple[dict[int, Document], dict[str, str]]:
    """The embedded texts by the positions of their queries, and headers of the answer."""
    texts = [body.text] if body.queries is None else [one.text for one in body.queries]
    given = {place: text for place, text in enumerate(texts) if text is not None}
    if not given:
        return {}, {}
    try:
        result = await inference.embed(request, list(given.values()))
    except UnusableInputError as error:
        if body.queries is not None:
            error.message = f"queries.{list(given)[error.index]} {error.reason}"
        raise
    documents = dict(zip(given, result.documents, strict=True))
    return documents, inference.headers(request, result)


async def _query(
    body: SimilarRequest, place: int, embedded: Document | None, index: Index
) -> tuple[Query, Windows | None]:
    """The query at a position, and its windows if the request asks for them."""
    from service.index.query.search import Query, stored

    one = body if body.queries is None else body.queries[place]
    windows = None
    if embedded is not None:
        query = Query(normalise(embedded.vector()), one.text or "")
        if body.explain:
            ends = [window.end for window in embedded.windows]
            windows = Windows(embedded.matrix(), ends)
    else:
        name = one.id or ""
        try:
            query = await stored(index, name)
        except NotFoundError as error:
            if body.queries is not None:
                error.message = f"queries.{place}: {error.message}"
            raise
        windows = (await index.windows([name])).get(name) if body.explain else None
        if body.explain and windows is None:
            raise DamagedError
    return replace(query, exclude=frozenset(body.exclude), offset=body.offset), windows


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
