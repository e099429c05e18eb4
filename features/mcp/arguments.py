"""The arguments of the tools. The routes check them again, with their own limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from service.server.bodies.body import Body
from service.server.bodies.document_bodies import Metadata, Title
from service.server.bodies.names import INDEX_NAME, Identifier

# results that fit into the context of a language model
MOST_RESULTS = 50
MOST_CHARACTERS = 100_000
MOST_LINKS = 100

IndexName = Annotated[str, Field(pattern=INDEX_NAME)]
Text = Annotated[str, Field(min_length=1)]
Results = Annotated[int, Field(ge=1, le=MOST_RESULTS)]
Filter = Annotated[
    dict[str, Any],
    Field(
        description='a condition on declared fields: {"field": "year", "gte": 2010, "lt": 2020} '
        'with eq, ne, gt, gte, lt, lte or in; {"field": "tags", "contains": "a"} for lists of '
        'strings; {"and": [f, g]}, {"or": [f, g]}, {"not": f}'
    ),
]


class Arguments(Body):
    """Arguments of a tool."""


class Indexes(Arguments):
    """Arguments of list_indexes."""

    after: IndexName | None = Field(None, description="`next` of the former result")


class OfIndex(Arguments):
    """An index."""

    index: IndexName = Field(description="a name that list_indexes shows")


class Query(OfIndex):
    """A text of any length, or the id of a stored document."""

    text: Text | None = Field(None, description="a text of any length; or give id")
    id: Identifier | None = Field(None, description="a document of the index; it is left out")

    @model_validator(mode="after")
    def _text_or_id(self) -> Query:
        # the route would name its field queries, which the tools lack
        if (self.text is None) == (self.id is None):
            raise ValueError("give either text or id")
        return self


class Documents(Query):
    """Arguments of find_documents."""

    mode: Literal["cosine", "words", "hybrid"] = Field(
        "hybrid", description="cosine finds by meaning, words by words, hybrid by both"
    )
    top_k: Results = 10
    exclude: list[Identifier] = Field(
        default_factory=list, max_length=1000, description="ids of documents to leave out"
    )
    diversity: float = Field(
        0,
        ge=0,
        le=1,
        description="with 0.5 few versions or copies of one document are among the hits",
    )
    filter: Filter | None = None
    explain: bool = Field(False, description="show the places that resemble each other most")


class Citations(Query):
    """Arguments of find_citations."""

    direction: Literal["cites", "cited_by"] | None = Field(
        None, description="cites: what the text cites; cited_by: what cites it; both by default"
    )
    top_k: Results = 10
    filter: Filter | None = None


class Passages(Query):
    """Arguments of find_passages."""

    start: int | None = Field(None, ge=0, description="with id: the first character of a part")
    end: int | None = Field(None, ge=1, description="with start: one past its last character")
    mode: Literal["cosine", "words", "hybrid"] = "hybrid"
    top_k: Results = Field(10, description="most documents")
    passages: int = Field(3, ge=1, le=10, description="most passages of each document")
    snippet_characters: int = Field(300, ge=20, le=2000)
    filter: Filter | None = None


class Pair(OfIndex):
    """Arguments of explain_pair."""

    document: Identifier = Field(description="id of a document of the index")
    text: Text | None = Field(None, description="what to compare it with; or give id")
    id: Identifier | None = Field(None, description="another document of the index")


class Classify(Arguments):
    """Arguments of classify."""

    text: Text = Field(description="a document of any length")
    classifier: IndexName | None = None
    top_k: Results = Field(10, description="most labels")
    threshold: float = Field(0.0, ge=0, le=1, description="lowest probability of a label")


class Part(OfIndex):
    """Arguments of get_document."""

    id: Identifier
    start: int = Field(0, ge=0, description="first character of the part")
    characters: int = Field(20_000, ge=1, le=MOST_CHARACTERS, description="length of the part")
    links_start: int = Field(
        0, ge=0, description=f"place of the first link to show; a result has {MOST_LINKS} of them"
    )


class NewDocument(Arguments):
    """A document to store."""

    id: Identifier
    text: Text
    title: Title = None
    metadata: Metadata = Field(default_factory=dict)
    links: list[Identifier] = Field(
        default_factory=list, max_length=10_000, description="ids of documents that it cites"
    )


class Upsert(OfIndex):
    """Arguments of upsert_documents."""

    documents: list[NewDocument] = Field(min_length=1, max_length=MOST_RESULTS)


class Delete(OfIndex):
    """Arguments of delete_documents."""

    ids: list[Identifier] = Field(min_length=1, max_length=MOST_RESULTS)
