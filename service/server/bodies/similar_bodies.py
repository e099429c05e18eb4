"""Bodies of POST /similar."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from service.index.query.filters import Filter
from service.server.bodies.areas import AreaIn
from service.server.bodies.body import Body
from service.server.bodies.fields import TEXT
from service.server.bodies.names import INDEX_NAME, Identifier, optional_text

Source = Literal["given", "found", "both"]

MOST_QUERIES = 100
# values of a facet in the answer
MOST_VALUES = 100
# hits of one answer
MOST_HITS = 1000
# ranked documents of one request: of each query those that offset leaves out count, too
MOST_RANKED = 10_000
# the same with diversity, which compares all pairs of candidates
MOST_DIVERSE = 1000


class QueryIn(Body):
    """One of several queries."""

    text: Annotated[str | None, BeforeValidator(optional_text), TEXT] = Field(
        None, description="a document of any length; or give id"
    )
    id: Identifier | None = Field(None, description="a document of the index; it is left out")

    @model_validator(mode="after")
    def _text_or_id(self) -> QueryIn:
        if (self.text is None) == (self.id is None):
            raise ValueError("give either text or id")
        return self


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


class Span(BaseModel):
    """Characters of a document, counted in Unicode code points."""

    start: int
    end: int


class Place(Span):
    """Characters of a stored document, and where they begin in the file that it came from."""

    page: int | None = Field(None, description="from 1")
    heading: str | None = Field(None, description="the last one up to there")


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
