"""The tools: what an agent can do, each by requests to the REST routes.

A tool has no other access. Its arguments are those of the routes, with limits that fit into the
context of a language model; the routes check them again, and the rights of the key.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_type_hints
from urllib.parse import quote

from pydantic import BaseModel, Field, create_model
from starlette.types import ASGIApp, Message, Scope

from service.keys.file import EVERYTHING, Right, Rights
from service.server.bodies.fields import INDEX_NAME, Body, Identifier, Place, QueryIn
from service.server.edge.errors import translate
from service.server.edge.rights import KEY, RIGHTS
from service.server.routes.classify import Explained
from service.server.routes.similar import HitOut
from service.server.routes.stored.documents import DocumentIn, DocumentOut
from service.server.routes.stored.indexes import IndexOut
from service.server.routes.stored.passages import PassagesOut, PassagesRequest

MOST_RESULTS = 50
MOST_CHARACTERS = 100_000
MOST_LINKS = 100
PAIRS = 3
_HEADERS = [(b"content-type", b"application/json"), (b"accept", b"application/json")]
_USAGE = "docsplit.usage"

Hits = create_model("Hits", hits=(list[HitOut], ...))
IndexName = Annotated[str, Field(pattern=INDEX_NAME, description="a name that list_indexes shows")]
Results = Annotated[int, Field(ge=1, le=MOST_RESULTS)]
Mode = Literal["cosine", "words", "hybrid"]
Filter = Annotated[
    dict[str, Any],
    Field(
        description='a condition on declared fields: {"field": "year", "gte": 2010, "lt": 2020} '
        'with eq, ne, gt, gte, lt, lte or in; {"field": "tags", "contains": "a"} for lists of '
        'strings; {"and": [f, g]}, {"or": [f, g]}, {"not": f}'
    ),
]


class RefusedError(Exception):
    """A route refused the request. The message says what was wrong and how to fix it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The request to /mcp, in whose name a tool asks the routes.

    Its key, rates, limits and deadline hold for them.

    Attributes:
        scope: of the request, with its key, rights and deadline.
    """

    app: ASGIApp
    scope: Scope

    @property
    def may_write(self) -> bool:
        """Whether the request has a key that may write to an index."""
        rights: Rights = self.scope.get(RIGHTS, EVERYTHING)
        return KEY in self.scope and bool(rights.patterns.get(Right.WRITE_INDEXES))

    async def get(self, *segments: str) -> Any:
        """The answer of a route; the segments of its path may contain any character."""
        return await self._ask("GET", segments, b"")

    async def post(self, *segments: str, body: dict[str, Any]) -> Any:
        """The answer of a route to a body."""
        return await self._ask("POST", segments, json.dumps(body).encode())

    async def indexes(self, after: str | None) -> tuple[list[str], str | None]:
        """A page of the names of the indexes that the key may use, and the ``after`` of the next.

        Args:
            after: the last name of the page before; None for the first page.
        """
        found: list[str] = (await self.get("indexes"))["indexes"]
        left = [name for name in found if after is None or name > after]
        page = left[:MOST_RESULTS]
        return page, page[-1] if len(left) > len(page) else None

    async def document(self, index: str, name: str) -> dict[str, Any]:
        """A document with its text, as GET /indexes/{name}/documents/{id} answers.

        Raises:
            RefusedError: there is none; the route of an id such as ``a/links`` may be another one.
        """
        found: dict[str, Any] = await self.get("indexes", index, "documents", name)
        if "text" not in found:
            raise RefusedError("there is no document of that id in this index")
        return found

    async def _ask(self, method: str, segments: tuple[str, ...], body: bytes) -> Any:
        path = "".join(f"/{one}" for one in segments)
        own = {"method": method, "path": path, "raw_path": quote(path).encode()}
        scope = {**self.scope, **own, "query_string": b"", "headers": _HEADERS}
        left = [{"type": "http.request", "body": body, "more_body": False}]
        messages: list[Message] = []

        async def receive() -> Message:
            if not left:
                # the guard of the request to /mcp notices that its client left
                await asyncio.Event().wait()
            return left.pop()

        async def send(message: Message) -> None:
            messages.append(message)

        try:
            await self.app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 what the routes do not answer, the guard would
            raise RefusedError(translate(error).message) from None
        if _USAGE in scope:
            self.scope[_USAGE] = scope[_USAGE]
        answer = json.loads(b"".join(message.get("body", b"") for message in messages))
        if messages[0]["status"] >= 400:
            raise RefusedError(answer["error"])
        return answer


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    Attributes:
        run: makes the structured result from a request to /mcp and the tool's arguments.
        writes: whether it changes an index; then only a key that may write sees it.
    """

    name: str
    description: str
    run: Callable[[Caller, Any], Awaitable[dict[str, Any]]]
    arguments: type[Body]
    result: type[BaseModel]
    writes: bool


TOOLS: list[Tool] = []


def offered(caller: Caller) -> dict[str, Tool]:
    """The tools that the caller may use, by name."""
    return {tool.name: tool for tool in TOOLS if caller.may_write or not tool.writes}


def tool(result: type[BaseModel], writes: bool = False) -> Callable[[Any], Any]:
    """Offer a function to agents, with its name, its docstring and the type of its arguments."""

    def offer(run: Any) -> Any:
        description = " ".join((run.__doc__ or "").split())
        given = get_type_hints(run)["given"]
        TOOLS.append(Tool(run.__name__, description, run, given, result, writes))
        return run

    return offer


class After(Body):
    """Arguments of list_indexes."""

    after: Annotated[str, Field(pattern=INDEX_NAME)] | None = Field(
        None, description="`next` of the former result"
    )


class Indexes(BaseModel):
    """Some of the indexes that the key may use, in the order of their names."""

    indexes: list[str]
    described: list[IndexOut] = Field(description="those of them that it may read")
    next: str | None = Field(description="give it as after to see more; null: there are no more")


@tool(Indexes)
async def list_indexes(caller: Caller, given: After) -> dict[str, Any]:
    """List the indexes of documents, with their number of documents and the metadata fields that
    filters can name. Call it first. A result has at most 50; next leads to more."""
    names, following = await caller.indexes(given.after)
    described = []
    for name in names:
        try:
            described.append(await caller.get("indexes", name))
        except RefusedError:
            # the key may write to the index but not read it, or the index was just deleted
            continue
    return {"indexes": names, "described": described, "next": following}


class Search(QueryIn):
    """A text or a stored document, and the documents to find."""

    index: IndexName
    top_k: Results = 10
    filter: Filter | None = None


class Documents(Search):
    """Arguments of find_documents."""

    mode: Mode = Field(
        "hybrid", description="cosine finds by meaning, words by words, hybrid by both"
    )
    exclude: list[Identifier] = Field(
        default_factory=list, max_length=1000, description="ids of documents to leave out"
    )
    diversity: float = Field(
        0,
        ge=0,
        le=1,
        description="with 0.5 few versions or copies of one document are among the hits",
    )
    explain: bool = Field(False, description="show the places that resemble each other most")


@tool(Hits)
async def find_documents(caller: Caller, given: Documents) -> dict[str, Any]:
    """Find documents of an index that resemble a text of any length, or a stored document by its
    id. With explain, each hit shows the places (start, end) of both documents that resemble each
    other most."""
    return {"hits": await caller.post("similar", body=given.model_dump())}


class Passages(PassagesRequest):
    """Arguments of find_passages."""

    index: IndexName
    top_k: Results = 10
    # described in words: the schema of the route has thousands of characters
    filter: Filter | None = None  # type: ignore[assignment]


@tool(create_model("Passages", documents=(list[PassagesOut], ...)))
async def find_passages(caller: Caller, given: Passages) -> dict[str, Any]:
    """Find passages that fit a question or a text, or a stored document (id) or a part of it
    (start, end). Each passage has its place (start, end) in the document and a snippet;
    get_document reads the text around it."""
    return {"documents": await caller.post("passages", body=given.model_dump())}


class Citations(Search):
    """Arguments of find_citations."""

    direction: Literal["cites", "cited_by"] | None = Field(
        None, description="cites: what the text cites; cited_by: what cites it; both by default"
    )


@tool(Hits)
async def find_citations(caller: Caller, given: Citations) -> dict[str, Any]:
    """Predict what a text or a stored document (id) cites, or what cites it, with probabilities.
    get_document shows the known links of a document."""
    return {"hits": await caller.post("similar", body={**given.model_dump(), "mode": "citation"})}


class Pair(QueryIn):
    """Arguments of explain_pair."""

    index: IndexName
    document: Identifier = Field(description="id of a document of the index")


class WindowOut(Place):
    """A window."""

    text: str


class PairOut(BaseModel):
    """Two windows that resemble each other."""

    cosine: float
    query: WindowOut
    document: WindowOut


class Pairs(BaseModel):
    """What two documents have in common."""

    cosine: float = Field(description="of the whole documents")
    pairs: list[PairOut]


@tool(Pairs)
async def explain_pair(caller: Caller, given: Pair) -> dict[str, Any]:
    """Show why a document of an index resembles a text, or another document (id) of the index: the
    cosine, and the pairs of passages that are most alike, with their places and texts."""
    body = {**given.model_dump(include={"text", "id"}), "other": given.document, "top_k": PAIRS}
    # of the stored windows, which cost nothing to compare
    found = await caller.post("indexes", given.index, "compare", body=body)
    texts = {"query": given.text or ""}
    texts["document"] = (await caller.document(given.index, given.document))["text"]
    if given.id is not None:
        texts["query"] = (await caller.document(given.index, given.id))["text"]
    for pair in found["pairs"]:
        for side, text in texts.items():
            pair[side]["text"] = text[pair[side]["start"] : pair[side]["end"]]
    return {"cosine": found["cosine"], "pairs": found["pairs"]}


class Classify(Body):
    """Arguments of classify."""

    text: str = Field(min_length=1, description="a document of any length")
    classifier: Annotated[str, Field(pattern=INDEX_NAME)] | None = None
    top_k: Results = Field(10, description="most labels")
    threshold: float = Field(0.0, ge=0, le=1, description="lowest probability of a label")


@tool(Explained)
async def classify(caller: Caller, given: Classify) -> dict[str, Any]:
    """Label a text with a trained classifier: labels with calibrated probabilities, and the
    passages that decided. Without a name it uses the only classifier, or lists the names."""
    body = {**given.model_dump(exclude={"text"}), "inputs": given.text, "explain": True}
    labels: dict[str, Any] = (await caller.post("classify", body=body))[0]
    return labels


class Part(Body):
    """Arguments of get_document."""

    index: IndexName
    id: Identifier
    start: int = Field(0, ge=0, description="first character of the part")
    characters: int = Field(20_000, ge=1, le=MOST_CHARACTERS, description="length of the part")
    links_start: int = Field(
        0, ge=0, description=f"place of the first link to show; a result has {MOST_LINKS} of them"
    )


class DocumentPart(DocumentOut):
    """A document with a part of its text and of its links."""

    link_count: int = Field(description="of the whole document")
    characters: int = Field(description="length of the whole text")
    start: int
    end: int


@tool(DocumentPart)
async def get_document(caller: Caller, given: Part) -> dict[str, Any]:
    """Read a stored document: title, metadata, the ids that it cites (links), and a part of its
    text. Ask again with a higher start for more text, and with a higher links_start for more
    links."""
    found = await caller.document(given.index, given.id)
    whole, links = found["text"], found["links"]
    start = min(given.start, len(whole))
    end = min(start + given.characters, len(whole))
    shown = links[given.links_start : given.links_start + MOST_LINKS]
    part = {"characters": len(whole), "start": start, "end": end, "text": whole[start:end]}
    return {**found, **part, "links": shown, "link_count": len(links)}


class Upsert(Body):
    """Arguments of upsert_documents."""

    index: IndexName
    documents: list[DocumentIn] = Field(min_length=1, max_length=MOST_RESULTS)


class Written(BaseModel):
    """The number of documents."""

    documents: int
    done: Literal["stored", "deleted"]


@tool(Written, writes=True)
async def upsert_documents(caller: Caller, given: Upsert) -> dict[str, Any]:
    """Store documents in an index; one with an existing id replaces the former document."""
    body = given.model_dump(exclude={"index"})
    answer = await caller.post("indexes", given.index, "documents", body=body)
    return {"documents": answer["upserted"], "done": "stored"}


class Delete(Body):
    """Arguments of delete_documents."""

    index: IndexName
    ids: list[Identifier] = Field(min_length=1, max_length=MOST_RESULTS)


@tool(Written, writes=True)
async def delete_documents(caller: Caller, given: Delete) -> dict[str, Any]:
    """Delete documents of an index by their ids."""
    body = {"ids": given.ids}
    answer = await caller.post("indexes", given.index, "documents", "delete", body=body)
    return {"documents": answer["deleted"], "done": "deleted"}
