"""POST /similar: documents of an index that resemble a text or another document of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from docsplit.ranking.fusion import diverse
from docsplit.windowing.pooling import normalise
from service import executors
from service.embedding.embedder import Document
from service.errors import NotFoundError
from service.index.query.filters import Filter
from service.index.rows.records import Windows
from service.server.bodies.encoding import json_response, stored_object
from service.server.bodies.fields import (
    INDEX_NAME,
    TEXT,
    AreaIn,
    Body,
    Identifier,
    Place,
    QueryIn,
    Source,
    Span,
    optional_text,
)
from service.server.bodies.large import BoundedRoute
from service.server.edge import rights
from service.server.edge.errors import written
from service.server.routes import inference
from service.server.routes.citation import open_citing
from service.tracing.stages import Stage

if TYPE_CHECKING:
    from service.index.documents import Index
    from service.index.query.filters import Facet
    from service.index.query.reading import Hit, Query

router = APIRouter(route_class=BoundedRoute, tags=["index"])

MOST_QUERIES = 100
# values of a facet in the answer
MOST_VALUES = 100
# hits of one answer
MOST_HITS = 1000
# ranked documents of one request: of each query those that offset leaves out count, too
MOST_RANKED = 10_000
# the same with diversity, which compares all pairs of candidates
MOST_DIVERSE = 1000


class SimilarRequest(Body):
    """The query and its options."""

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
    mode: Literal["cosine", "words", "hybrid", "citation", "coupled"] = "cosine"
    direction: Literal["cites", "cited_by"] | None = Field(
        None, description="only in the mode citation: what the text cites, or what cites it"
    )
    unlinked: bool = Field(
        False, description="only with the direction cites: leave out what the document cites"
    )
    links_from: Source | None = Field(
        None,
        description="only in the mode coupled: whose links count, given by users, found in texts, "
        "or both, which is the default",
    )
    filter: Filter | None = Field(None, description="see docs/reference/api/search.md, Filters")
    area: AreaIn | None = Field(None, description="only documents inside an area of the map")
    adapt: bool = Field(
        True, description="in the modes cosine and hybrid: adapt the cosine to the index"
    )
    diversity: float = Field(
        0,
        ge=0,
        le=1,
        description="leave out documents that resemble hits before them: maximal marginal "
        "relevance; 0 ranks by the score only",
    )
    facets: list[Annotated[str, Field(max_length=64)]] = Field(
        default_factory=list,
        max_length=8,
        fail_fast=True,
        description="declared fields whose values are counted over all documents that pass the "
        "filter; the answer is then an object",
    )
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
        if self.diversity and several * (self.offset + self.top_k) > MOST_DIVERSE:
            raise ValueError(
                "with diversity the number of queries times the sum of offset and top_k is at most "
                f"{MOST_DIVERSE}"
            )
        if self.direction is not None and self.mode != "citation":
            raise ValueError("direction: use it only with the mode citation")
        if self.unlinked and self.direction != "cites":
            raise ValueError("unlinked: use it only with the direction cites")
        if self.mode == "coupled":
            if any(one is not None for one in [self.text, *(q.text for q in self.queries or ())]):
                raise ValueError(
                    "text: the mode coupled compares links, and only documents of the index have "
                    "links: give the id of one, or use another mode"
                )
        elif self.links_from is not None:
            raise ValueError("links_from: use it only with the mode coupled")
        return self


class PairOut(BaseModel):
    """Two windows that resemble each other."""

    cosine: float
    query: Span
    document: Place


class HitOut(BaseModel):
    """A document that the search found."""

    id: str
    score: float = Field(description="the mode's ranking score")
    cosine: float = Field(description="of the two vectors, not adapted")
    title: str | None
    metadata: dict[str, Any]
    link_probability: float | None = Field(None, description="in the mode citation")
    shared_references: int | None = Field(
        None, description="in the mode coupled: number of documents that both cite"
    )
    co_citations: int | None = Field(
        None, description="in the mode coupled: number of documents that cite both"
    )
    direction: Literal["cites", "cited_by"] | None = Field(
        None, description="whether the query cites the document, or the document cites the query"
    )
    pairs: list[PairOut] | None = None


class CountOut(BaseModel):
    """A value and the number of documents that have it."""

    value: str | int | bool
    count: int


class FacetOut(BaseModel):
    """Values of a field, the most frequent first."""

    values: list[CountOut] = Field(max_length=MOST_VALUES)
    others: int = Field(description="sum of the counts of all other values")


class FacetsOut(BaseModel):
    """The answer to a request with `facets`."""

    hits: list[HitOut] | list[list[HitOut]]
    facets: dict[str, FacetOut]


PAIRS = 3
# least number of hits that diversity chooses from
CANDIDATES = 100
# modes that compare words
_WORDED = ("words", "hybrid", "citation")


@router.post(
    "/similar",
    **written(
        list[HitOut] | list[list[HitOut]] | FacetsOut,
        *(400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503),
        said="Highest score first; with `queries` one list for each, in their order.",
    ),
)
async def similar(request: Request, body: SimilarRequest) -> Response:
    """Documents that resemble a text or a document of the index, which is left out."""
    service = inference.service_of(request)
    name = await rights.readable(request, body.index)
    indexes = await service.store.indexes()
    if body.mode == "citation":
        index, head = await open_citing(request, name)
    else:
        index, head = await inference.open_index(request, name), None
    where = await inference.condition(request, index, body.filter, body.area)
    from service.index.query import filters, search

    filters.check(body.facets, index.identity.fields)
    texts, headers = await _embedded(request, body, index)
    from service.index.link_graph import Graph, coupled
    from service.learning.citations import citation

    profile = None
    if body.adapt and body.mode in ("cosine", "hybrid"):
        profile = await service.store.profile(name, index)
    reserve = inference.reserving_heads(request)
    answers = []
    limit = body.offset + body.top_k
    if body.diversity:
        limit = min(max(CANDIDATES, 2 * limit), MOST_HITS)
    for place in range(len(body.queries or [None])):
        query, windows = await _query(request, body, place, texts.get(place), index)
        query = replace(query, reserve=reserve)
        graph = Graph(index, indexes.found_links, "both")
        if body.unlinked and query.id is not None:
            cited = await graph.cites(query.id)
            query = replace(query, exclude=query.exclude | cited)
        with Stage("search") as stage:
            if head is not None:
                graph = replace(graph, source=head.report.get("links_from", "given"))
                hits = await citation(
                    index, query, limit, where, head.network, graph, body.direction
                )
            elif body.mode == "coupled":
                graph = replace(graph, source=body.links_from or graph.source)
                hits = await coupled(index, query, limit, where, graph)
            else:
                run = {"cosine": search.cosine, "words": search.words, "hybrid": search.hybrid}[
                    body.mode
                ]
                hits = await run(index, replace(query, profile=profile), limit, where)
            if body.diversity:
                hits = await executors.SCORING.run(_diverse, hits, body)
            stage.note({"docsplit.mode": body.mode, "docsplit.hits": len(hits)})
        service.metrics.index_search_seconds.labels(body.mode).observe(stage.seconds)
        content = [_hit(hit) for hit in hits]
        if windows is not None:
            await _explain(index, windows, content)
        answers.append(content)
    counted = await filters.count(index, body.facets, where) if body.facets else {}
    answer = answers[0] if body.queries is None else answers
    if not body.facets:
        return json_response(answer, headers)
    values = {name: _facet(facet) for name, facet in counted.items()}
    return json_response({"hits": answer, "facets": values}, headers)


async def _embedded(
    request: Request, body: SimilarRequest, index: Index
) -> tuple[dict[int, Document], dict[str, str]]:
    """The embedded texts by the positions of their queries, and headers of the answer."""
    texts = [body.text] if body.queries is None else [one.text for one in body.queries]
    given = {place: text for place, text in enumerate(texts) if text is not None}
    if not given:
        return {}, {}
    encoder = inference.encoder_of_index(request, index)
    places = ["text"] if body.queries is None else [f"queries.{place}" for place in given]
    with inference.naming(places.__getitem__):
        result = await inference.embed(request, list(given.values()), encoder=encoder)
    documents = dict(zip(given, result.documents, strict=True))
    return documents, inference.headers(request, result)


async def _query(
    request: Request,
    body: SimilarRequest,
    place: int,
    embedded: Document | None,
    index: Index,
) -> tuple[Query, Windows | None]:
    """The query at a position, and its windows if the request asks for them."""
    from service.index.documents import windows_of
    from service.index.query.reading import Query
    from service.index.query.search import stored

    one = body if body.queries is None else body.queries[place]
    windows = None
    if embedded is not None:
        query = Query(normalise(embedded.vector()), one.text or "")
        if body.explain:
            ends = [window.end for window in embedded.windows]
            windows = Windows(embedded.matrix(), ends)
    else:
        name = one.id or ""
        text = body.mode in _WORDED
        if text:
            await inference.reserve(request, index, name)
        try:
            query = await stored(index, name, text=text)
        except NotFoundError as error:
            if body.queries is not None:
                error.message = f"queries.{place}: {error.message}"
            raise
        windows = await windows_of(index, name) if body.explain else None
    # the choice of diverse hits leaves out those before the offset itself
    offset = 0 if body.diversity else body.offset
    return replace(query, exclude=frozenset(body.exclude), offset=offset), windows


def _diverse(hits: list[Hit], body: SimilarRequest) -> list[Hit]:
    if not hits:
        return []
    scores = np.array([hit.score for hit in hits])
    vectors = np.stack([hit.vector for hit in hits])
    chosen = diverse(scores, vectors, body.offset + body.top_k, body.diversity)
    return [hits[place] for place in chosen[body.offset :]]


def _facet(facet: Facet) -> dict[str, Any]:
    shown = facet.most(MOST_VALUES)
    further = facet.counts.total() - sum(number for _, number in shown)
    return {
        "values": [{"value": value, "count": number} for value, number in shown],
        "others": facet.others + further,
    }


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
    if hit.shared is not None:
        content |= {
            "shared_references": hit.shared.references,
            "co_citations": hit.shared.citing,
        }
    return content


async def _explain(index: Index, query: Windows, content: list[dict[str, Any]]) -> None:
    from service.index.documents import windows_by_id
    from service.index.query import search

    for hit in content:
        # stays if its windows are damaged, or if it was deleted between the two reads
        hit["pairs"] = None
    hits = {hit["id"]: hit for hit in content}
    async for name, document in windows_by_id(index, list(hits)):
        hits[name]["pairs"] = [
            {
                "cosine": pair.cosine,
                "query": query.span(pair.query),
                "document": document.place(pair.document),
            }
            for pair in await executors.SCORING.run(search.closest_pairs, query, document, PAIRS)
        ]
