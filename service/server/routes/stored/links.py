"""/indexes/{name}/links and /documents/{id}/links: links that stand in texts, and all of one."""

from __future__ import annotations

from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query, Request
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from docsplit.ranking.references import Pattern, Rule
from service.errors import InvalidError, NotFoundError
from service.index.rows.fields import KEY_CHARACTERS
from service.keys.file import Right
from service.server.bodies.encoding import json_response
from service.server.bodies.fields import Body, DocumentId, Name, valid_text
from service.server.edge import rights
from service.server.edge.errors import documented, written
from service.server.routes import inference
from service.server.routes.stored import documents
from service.server.routes.turns import Turn

if TYPE_CHECKING:
    from service.index.found_links import Names, Report
    from service.index.link_graph import Entry
    from service.index.store import Store

router = rights.below_index()

SEARCHES = Turn("searches for links")


def _form(value: str) -> str:
    if value.count("*") > 1:
        raise ValueError("a form has one * at most")
    return value


Form = Annotated[
    str,
    BeforeValidator(valid_text),
    AfterValidator(_form),
    Field(min_length=1, max_length=200),
]
FieldName = Annotated[
    str, BeforeValidator(valid_text), Field(min_length=1, max_length=KEY_CHARACTERS)
]


class RuleIn(Body):
    """A further name of documents; `*` stands for the same characters in both forms."""

    ids: Form = Field(description="form of the documents' ids, such as `eip-*`")
    name: Form = Field(description="form of their names in texts, such as `ERC *`")
    texts: Form = Field(
        "*", description="form of the ids of the documents in whose texts it counts"
    )


class FindRequest(Body):
    """The names to look for in the texts."""

    ids: bool = Field(True, description="look for the documents' ids that have a digit")
    titles: bool = Field(True, description="look for the documents' titles")
    fields: list[FieldName] = Field(
        default_factory=list,
        max_length=8,
        fail_fast=True,
        description="metadata with identifiers, such as a DOI",
    )
    rules: list[RuleIn] = Field(default_factory=list, max_length=32, fail_fast=True)


class FoundOut(BaseModel):
    """What the last search for links read and found."""

    documents: int = Field(description="documents whose texts were read")
    names: int = Field(description="identifiers and titles that were looked for")
    ambiguous: int = Field(description="of these, names of several documents, which never count")
    left_out: int = Field(description="names beyond the limits")
    links: int = Field(description="pairs of documents")
    places: int = Field(description="places in the texts")
    cut: int = Field(description="documents with more links or names than are read")
    seconds: float


class PlaceOut(BaseModel):
    """A place in the text of the citing document, in code points."""

    start: int
    end: int
    kind: Literal["identifier", "title"]
    form: str | None = Field(description="the identifier as it was read; null for a title")


class LinkOut(BaseModel):
    """A link of a document."""

    id: str = Field(description="the other document")
    direction: Literal["cites", "cited_by"] = Field(description="the document cites the other one")
    title: str | None = Field(description="of the other document")
    exists: bool = Field(description="false if a given link names no document of the index")
    given: bool = Field(description="the link is in the `links` of the citing document")
    found: bool = Field(description="the link stands in the text of the citing document")
    places: int = Field(description="number of places in that text")
    first_places: list[PlaceOut] = Field(description="the first 20")


class LinksOut(BaseModel):
    """Links in the order of direction and id."""

    links: list[LinkOut]
    next: str | None = Field(description="`after` of the next page; null on the last")


_FIND = documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 503)
_READ = (401, 404, 409, 422, 503)


@router.post("/links/find", responses=_FIND)
async def find_links(request: Request, name: Name, body: FindRequest) -> FoundOut:
    """Find the links that stand in the texts, and replace those found before.

    It reads every text: send a long deadline.
    """
    # the counts reveal what the index holds
    rights.require(request, Right.READ_INDEXES, name)
    async with SEARCHES.taken():
        report = await renew(inference.service_of(request).store, name, _names(body))
    return FoundOut(**asdict(report))


async def renew(store: Store, name: str, names: Names, uid: str | None = None) -> Report:
    """Find the links of an index, and store them in place of those found before.

    Args:
        uid: which index of that name it must be; None takes the present one.
    """
    indexes = await store.indexes()
    index = await indexes.open(name)
    index.require(uid or index.identity.uid)
    from service.index import found_links

    rows, report = await found_links.find(index, names)
    (await indexes.open(name)).require(index.identity.uid)
    await indexes.found_links.replace(index.identity.uid, rows, report)
    return report


def _names(body: FindRequest) -> Names:
    from service.index.found_links import Names

    rules = (Rule(*map(Pattern, (one.ids, one.name, one.texts))) for one in body.rules)
    return Names(body.ids, body.titles, tuple(body.fields), tuple(rules))


@router.get("/links", responses=documented(*_READ))
async def describe_found_links(request: Request, name: Name) -> FoundOut:
    """What the last search for links found."""
    indexes = await inference.service_of(request).store.indexes()
    index = await indexes.open(name, still=True)
    report = await indexes.found_links.report(index.identity.uid)
    if report is None:
        raise NotFoundError(
            f"no links were looked for in this index: do so with POST /indexes/{name}/links/find"
        )
    return FoundOut(**asdict(report))


@router.delete("/links", status_code=204, responses=documented(*_READ), response_class=Response)
async def forget_found_links(request: Request, name: Name) -> Response:
    """Forget the links that were found in texts; those that users gave stay."""
    indexes = await inference.service_of(request).store.indexes()
    index = await indexes.open(name, still=True)
    await indexes.found_links.forget(index.identity.uid)
    return Response(status_code=204)


@router.get("/documents/{document_id:path}/links", **written(LinksOut, *_READ))
async def list_links(
    request: Request,
    name: Name,
    document_id: DocumentId,
    after: Annotated[str, Query(max_length=530)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Links from and to a document: those that users gave, and those that stand in texts.

    If the id of a document ends in `/links`, its path gives the document itself.
    """
    direction, _, other = after.partition(":")
    if after and direction not in ("cites", "cited_by"):
        raise InvalidError("after: give `next` of the page before", "after")
    indexes = await inference.service_of(request).store.indexes()
    index = await indexes.open(name, still=True)
    there = await index.has(f"{document_id}/links")
    if not there:
        from service.index import link_graph

        page = await link_graph.page(
            index, indexes.found_links, document_id, (direction, other), limit
        )
    if there:
        return await documents.get_document(request, name, f"{document_id}/links")
    following = ":".join(page.next) if page.next is not None else None
    return json_response({"links": [_link(entry) for entry in page.entries], "next": following})


def _link(entry: Entry) -> dict[str, Any]:
    found = entry.found
    columns = () if found is None else (found.starts, found.ends, found.titles, found.forms)
    return {
        "id": entry.id,
        "direction": entry.direction,
        "title": entry.title,
        "exists": entry.exists,
        "given": entry.given,
        "found": found is not None,
        "places": 0 if found is None else found.places,
        "first_places": [place(*own) for own in zip_longest(*columns)],
    }


def place(start: int, end: int, title: bool, form: str | None) -> dict[str, Any]:
    """A ``PlaceOut``."""
    kind = "title" if title else "identifier"
    return {"start": start, "end": end, "kind": kind, "form": form or None}
