"""/indexes/{name}/documents: write, read, change, compare and delete documents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, FailFast, Field, WithJsonSchema, model_validator

from service import executors, memory
from service.embedding.cache import layers
from service.embedding.embedder import Embedded
from service.errors import InvalidError, NotFoundError, OvertakenError, VersionError
from service.index.query.filters import Filter, compile_filter
from service.index.rows import fields, versions
from service.keys.file import Right
from service.server.bodies.encoding import json_response, stored_object
from service.server.bodies.fields import (
    TEXT,
    Body,
    DocumentId,
    Identifier,
    Name,
    NewIdentifier,
    Place,
    QueryIn,
    optional_text,
    valid_text,
)
from service.server.edge import rights
from service.server.edge.bodies import ROOM
from service.server.edge.errors import NativeError, documented, written
from service.server.routes import inference
from service.tracing.stages import Stage

if TYPE_CHECKING:
    from docsplit.windowing.pooling import Vectors
    from service.index.documents import Index
    from service.index.query.listing import Head
    from service.index.rows.records import Encoding, Record, Stored, Windows
    from service.index.rows.versions import Condition
    from service.server.lifecycle import Service

# a GET reads and other methods write, but some reading routes are POST
_any = rights.below_index("/documents")
_reading = rights.below_index(may=rights.to_read_index)

# lowest resemblance of near-duplicates, unless a request gives another
THRESHOLD = 0.4
# near-duplicates that an upsert names of each document
MOST_MATCHES = 10
_VERSION = Field(description="changes with every write of the document")


def _metadata(value: Any) -> Any:
    if problem := fields.problem(value):
        raise ValueError(problem)
    return value


def _title(value: Any) -> str | None:
    title = optional_text(value)
    if title is not None and len(title) > fields.TITLE_CHARACTERS:
        raise ValueError(f"{len(title)} characters; the limit is {fields.TITLE_CHARACTERS}")
    return title


Metadata = Annotated[
    dict[str, Any],
    BeforeValidator(_metadata),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": fields.MOST_KEYS,
            "propertyNames": {"minLength": 1, "maxLength": fields.KEY_CHARACTERS},
            "additionalProperties": {
                "anyOf": [
                    {"type": "string", "maxLength": fields.METADATA_BYTES},
                    {"type": "boolean"},
                    {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
                    {"type": "number"},
                    {"type": "null"},
                    {
                        "type": "array",
                        "items": {"type": "string"},
                        "maxItems": fields.MOST_ITEMS,
                    },
                ]
            },
            "description": f"at most {fields.METADATA_BYTES} bytes as JSON in UTF-8",
        }
    ),
]


Title = Annotated[str | None, BeforeValidator(_title)]


class DocumentIn(Body):
    """A document to store. An upsert replaces the whole document: omitted fields become empty."""

    id: NewIdentifier
    text: Annotated[str, BeforeValidator(valid_text), TEXT] = Field(description="of any length")
    title: Title = Field(None, json_schema_extra={"maxLength": fields.TITLE_CHARACTERS})
    metadata: Metadata = Field(default_factory=dict)
    links: Annotated[list[Identifier], FailFast()] = Field(
        default_factory=list, max_length=10_000, description="ids of the documents that it cites"
    )
    if_version: Annotated[str, BeforeValidator(valid_text)] | None = Field(
        None,
        max_length=64,
        description="write only over this version; * for any, an empty string for no document",
    )


class UpsertRequest(Body):
    """Documents to insert, or to replace if their id exists."""

    documents: Annotated[list[DocumentIn], FailFast()] = Field(min_length=1)
    force: bool = Field(
        False, description="embed every text again; use no vector from the index or a cache"
    )
    on_duplicate: Literal["allow", "mark", "refuse"] = Field(
        "allow",
        description="compare each text with other documents of the index: `mark` lists "
        "near-duplicates in the answer, `refuse` writes nothing if there are any",
    )


class DuplicateOut(BaseModel):
    """A document of the index that is nearly the same as one of the request."""

    id: str
    resemblance: float


class DuplicatesOut(BaseModel):
    """Near-duplicates of one document of the request."""

    position: int = Field(description="of the document in the request, from 0")
    duplicates: list[DuplicateOut] = Field(max_length=MOST_MATCHES)


def duplicates_refused(near: list[dict[str, Any]]) -> Response:
    """409: the index has near-duplicates of documents of the request."""
    content = {
        "error": "the index has near-duplicates of these documents: leave them out, or send "
        "on_duplicate: allow",
        "error_type": "Conflict",
        "duplicates": near,
    }
    return json_response(content, status=409)


class UpsertOut(BaseModel):
    """All documents are durable."""

    upserted: int
    versions: list[str] = Field(description="of the documents, in the order of the request")
    duplicates: list[DuplicatesOut] | None = Field(None, description="with `on_duplicate: mark`")


class DocumentHead(BaseModel):
    """A document without its text."""

    id: str
    title: str | None
    metadata: dict[str, Any]
    version: str = _VERSION


class DocumentOut(DocumentHead):
    """A document as the client sent it."""

    text: str
    links: list[str]


class PageOut(BaseModel):
    """Documents in the order of their ids."""

    documents: list[DocumentHead]
    next: str | None = Field(description="`after` of the next page; null on the last")


class VersionOut(BaseModel):
    """The version of one document of a request."""

    position: int = Field(description="of the document in the request, from 0")
    version: str | None = Field(description="null if no document has that id")


class MismatchError(NativeError):
    """Documents that do not have the required version."""

    conflicts: list[VersionOut] = Field(description="present versions; these are not written")
    written: list[VersionOut] = Field(
        description="empty, unless another write came between the check and the commit"
    )


IfMatch = Annotated[
    str | None,
    Header(
        max_length=1024,
        description='write only over this version, e.g. "64a1f0"; * for any version',
    ),
]
IfNoneMatch = Annotated[
    str | None, Header(max_length=1024, description="* to write only if there is no document")
]
IfChanged = Annotated[
    str | None,
    Header(
        alias="if-none-match",
        max_length=1024,
        description='the version that the client has, e.g. "64a1f0": 304 if it is still current',
    ),
]
_UNCHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The document still has the version that `if-none-match` names."}
}
_MISMATCH: dict[int | str, dict[str, Any]] = {
    412: {"model": MismatchError, "description": "A document has another version."}
}

_READS = (401, 404, 409, 422, 429, 503)
_EMBEDS = (400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503)
_TAGS = re.compile(r'\s*(W/)?"([^"]*)"\s*')


def header(if_match: str | None, if_none_match: str | None = None) -> Condition | None:
    """The condition on one document that the headers of a request set.

    Raises:
        InvalidError: a header is malformed.
    """
    if if_none_match is not None:
        if if_none_match.strip() != "*" or if_match is not None:
            raise InvalidError("if-none-match: send only *, and without if-match")
        return "absent"
    if if_match is None:
        return None
    if if_match.strip() == "*":
        return "there"
    accepted: set[int] = set()
    for part in if_match.split(","):
        found = _TAGS.fullmatch(part)
        if found is None:
            raise InvalidError('if-match: send * or a version in quotes, such as "64a1f0"')
        weak, tag = found.groups()
        exact = versions.condition(tag)
        # a weak tag never matches, and * in quotes is not a version
        if weak is None and isinstance(exact, frozenset):
            accepted |= exact
    return frozenset(accepted)


def of_stored(request: Request, if_match: str | None) -> Condition | None:
    """The condition of a change or a deletion, which concern a document that exists.

    Raises:
        InvalidError: a header is malformed, or requires that there is no document.
    """
    if "if-none-match" in request.headers:
        raise InvalidError(
            "if-none-match: only an upsert takes it; name the document's version in if-match"
        )
    return header(if_match)


def unchanged(if_none_match: str | None, version: str) -> bool:
    """Whether a client that reads a document names its current version (RFC 9110, 13.1.2)."""
    if if_none_match is None:
        return False
    parts = [_TAGS.fullmatch(part) for part in if_none_match.split(",")]
    return if_none_match.strip() == "*" or any(part and part[2] == version for part in parts)


def conditions(
    documents: Sequence[DocumentIn], if_match: str | None, if_none_match: str | None
) -> dict[str, Condition]:
    """The conditions of an upsert, by id.

    Raises:
        InvalidError: a header comes with several documents, or with ``if_version``.
    """
    found = {d.id: versions.condition(d.if_version) for d in documents if d.if_version is not None}
    whole = header(if_match, if_none_match)
    if whole is None:
        return found
    if len(documents) > 1 or found:
        raise InvalidError(
            "if-match, if-none-match: send them with one document, and without if_version"
        )
    return {documents[0].id: whole}


def mismatch(
    error: VersionError, ids: Sequence[str], wanted: Mapping[str, Condition] | None = None
) -> Response:
    """The answer to a write whose condition does not hold.

    Args:
        wanted: conditions of an upsert, by id; None for the document of a path.
    """
    places = {name: position for position, name in enumerate(ids)}

    def listed(some: dict[str, int | None]) -> list[dict[str, Any]]:
        found = sorted((places[name], version) for name, version in some.items())
        return [
            {"position": place, "version": None if version is None else versions.text(version)}
            for place, version in found
        ]

    conflicts = listed(dict(error.present))
    first = conflicts[0]
    if first["version"] is None:
        reason = (
            "there is no document of that id, but the condition names a version of it: leave the "
            "condition out, or see whether the id is right"
        )
    elif wanted and wanted.get(ids[first["position"]]) == "absent":
        reason = (
            "there is a document of that id, but the condition requires that there is none: give "
            "another id, or name the document's version in the condition"
        )
    else:
        reason = (
            "the document has another version than the condition names: read it, then write over "
            "its present version"
        )
    content = {
        "error": reason if wanted is None else f"documents.{first['position']}: {reason}",
        "error_type": "VersionMismatch",
        "conflicts": conflicts,
        "written": listed(dict(error.written)),
    }
    headers = {}
    if len(ids) == 1 and first["version"] is not None:
        headers["etag"] = f'"{first["version"]}"'
    return json_response(content, headers, status=412)


class WindowsOut(BaseModel):
    """The windows of a document; joined, they are its text."""

    windows: list[Place]
    pages: list[int] = Field(description="the first character of each page of its file, if any")


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


@_reading.get("/documents/{document_id:path}/windows", **written(WindowsOut, *_READS))
async def list_windows(request: Request, name: Name, document_id: DocumentId) -> Response:
    """The windows of a document, with the page and the heading where each begins.

    If the id of a document ends in `/windows`, its path gives the document itself.
    """
    index = await inference.open_index(request, name)
    from service.index.documents import windows_of

    if await index.has(f"{document_id}/windows"):
        return await get_document(request, name, f"{document_id}/windows")
    found = await windows_of(index, document_id)
    places = [found.place(i) for i in range(len(found.ends))]
    return json_response({"windows": places, "pages": found.outline.pages})


@_reading.post("/compare", **written(CompareOut, *_EMBEDS))
async def compare(request: Request, name: Name, body: CompareRequest) -> Response:
    """The windows that make a text or a document resemble a document of the index most."""
    index = await inference.open_index(request, name)
    from service.index.documents import windows_of
    from service.index.query import search

    other = (await search.stored(index, body.other, text=False)).vector
    windows = await windows_of(index, body.other)
    vector, own, headers = await _compared(request, index, body)
    found = await executors.SCORING.run(search.closest_pairs, own, windows, body.top_k)
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


async def _compared(
    request: Request, index: Index, body: CompareRequest
) -> tuple[Vectors, Windows, dict[str, str]]:
    """The vector and the windows of a text or a stored document, and headers of the answer."""
    from service.index.documents import windows_of
    from service.index.query import search
    from service.index.rows.records import Windows, encoded

    if body.id is not None:
        query = await search.stored(index, body.id, text=False)
        return query.vector, await windows_of(index, body.id), {}
    encoder = inference.encoder_of_index(request, index)
    with inference.naming(lambda _: "text"):
        result = await inference.embed(request, [body.text or ""], encoder=encoder)
    encoding = encoded(result.documents[0])
    windows = Windows(encoding.windows, encoding.ends)
    return encoding.vector, windows, inference.headers(request, result)


@_any.post("", **written(UpsertOut, *_EMBEDS, said="Durable.", more=_MISMATCH))
async def upsert_documents(
    request: Request,
    name: Name,
    body: UpsertRequest,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Embed documents and store them. The answer comes when they are durable.

    A document with an unchanged text keeps its vectors: the service computes nothing for it,
    unless `force` is true.
    """
    service = inference.service_of(request)
    documents = body.documents
    inference.check_count(service, len(documents))
    ids = [document.id for document in documents]
    if len(set(ids)) < len(ids):
        raise InvalidError("documents: two documents have the same id: send each once", "documents")
    if body.on_duplicate != "allow":
        # the answer reveals what the index holds
        rights.require(request, Right.READ_INDEXES, name)
    wanted = conditions(documents, if_match, if_none_match)
    try:
        indexes = await service.store.indexes()
        # only a complete generation knows the versions of documents
        opening = indexes.open if wanted else indexes.writable
        index = await opening(name, still=True)
        for position, document in enumerate(documents):
            fields.check(index.identity.fields, document.metadata, position)
        from service.index import commits
        from service.index.rows.records import record

        if wanted and (error := commits.check(wanted, await index.standing(list(wanted)))):
            raise error
        known, result = await _encodings(request, index, body)
        near = await _near(index, body, known)
        if near and body.on_duplicate == "refuse":
            return duplicates_refused(near)
        records = [record(document, known[document.id]) for document in documents]
        with Stage("commit") as stage:
            stage.note({"docsplit.documents": len(records)})
            # a value that the index cannot store fails only this request
            upsert = commits.Upsert(await index.rows(records), wanted)
            held = await service.store.upsert(name, index.identity.uid, upsert)
    except VersionError as error:
        return mismatch(error, ids, wanted)
    content: dict[str, Any] = {
        "upserted": len(ids),
        "versions": [versions.text(held[one]) for one in ids],
    }
    if body.on_duplicate == "mark":
        content["duplicates"] = near
    return json_response(content, inference.headers(request, result))


async def _near(
    index: Index, body: UpsertRequest, known: dict[str, Encoding]
) -> list[dict[str, Any]]:
    """Near-duplicates in the index, by position, if the request asks for them."""
    if body.on_duplicate == "allow":
        return []
    from service.index.query.duplicates import Held, like
    from service.index.query.reading import Query
    from service.index.storage.database import refresh

    # embedding may have taken a while
    await refresh(index.table)
    found = []
    held = Held()
    for position, one in enumerate(body.documents):
        query = Query(known[one.id].vector, one.text, one.id)
        if matches := await like(index, query, THRESHOLD, MOST_MATCHES, held):
            pairs = [{"id": m.hit.id, "resemblance": m.resemblance} for m in matches]
            found.append({"position": position, "duplicates": pairs})
    return found


async def _encodings(
    request: Request, index: Index, body: UpsertRequest
) -> tuple[dict[str, Encoding], Embedded]:
    """Encodings of all documents by id, and the newly computed documents."""
    from service.index.documents import kept
    from service.index.rows.records import encoded

    stored = {} if body.force else {one.id: one.text for one in body.documents}
    known = await kept(index, stored)
    places = [place for place, one in enumerate(body.documents) if one.id not in known]
    changed = [body.documents[place] for place in places]
    result = Embedded([])
    if changed:
        with layers.stored(), inference.naming(lambda at: f"documents.{places[at]}.text"):
            texts = [document.text for document in changed]
            encoder = inference.encoder_of_index(request, index)
            result = await inference.embed(request, texts, fresh=body.force, encoder=encoder)
    for document, embedded in zip(changed, result.documents, strict=True):
        known[document.id] = encoded(embedded)
    return known, result


@_any.get("", **written(PageOut, *_READS))
async def list_documents(
    request: Request,
    name: Name,
    after: Annotated[str, Query(max_length=512)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Documents in the order of their ids, one page at a time."""
    index = await inference.open_index(request, name)
    from service.index.query import listing

    page = await listing.page(index, after, limit)
    return json_response({"documents": [_head(one) for one in page.heads], "next": page.next})


def _head(one: Head | Stored) -> dict[str, Any]:
    """A ``DocumentHead``."""
    return {
        "id": one.id,
        "title": one.title,
        "metadata": stored_object(one.metadata),
        "version": versions.text(one.updated),
    }


@_any.get("/{document_id:path}", **written(DocumentOut, *_READS, more=_UNCHANGED))
async def get_document(
    request: Request, name: Name, document_id: DocumentId, if_none_match: IfChanged = None
) -> Response:
    """One document as the client sent it; the header `ETag` also has its version."""
    index = await inference.open_index(request, name)
    await inference.reserve(request, index, document_id)
    found = await index.get(document_id)
    content = {**_head(found), "text": found.text, "links": found.links}
    headers = {"etag": f'"{content["version"]}"'}
    if unchanged(if_none_match, content["version"]):
        return Response(status_code=304, headers=headers)
    return json_response(content, headers)


@_any.delete(
    "/{document_id:path}",
    status_code=204,
    responses=_MISMATCH | documented(*_READS),
    response_model=None,
    response_class=Response,
)
async def delete_document(
    request: Request, name: Name, document_id: DocumentId, if_match: IfMatch = None
) -> Response:
    """Delete one document; the deletion is durable when acknowledged."""
    service = inference.service_of(request)
    condition = of_stored(request, if_match)
    indexes = await service.store.indexes()
    index = await indexes.writable(name, still=True)
    if not await index.has(document_id) and not await indexes.holds(name, document_id):
        raise NotFoundError("no document in this index has that id")
    try:
        await service.store.delete(name, index.identity.uid, [document_id], condition)
    except VersionError as error:
        return mismatch(error, [document_id])
    return Response(status_code=204)


MOST_IDS = 1000


class GetRequest(Body):
    """The documents to read."""

    ids: list[Identifier] = Field(min_length=1, max_length=MOST_IDS, fail_fast=True)
    text: bool = Field(True, description="whether the answer has the texts")


class ManyOut(DocumentHead):
    """A document without its links."""

    text: str | None = Field(None, description="absent with `text: false`")


class GetOut(BaseModel):
    """The documents in the order of the ids."""

    documents: list[ManyOut]
    missing: list[str] = Field(description="ids of no document")
    damaged: list[str] = Field(description="ids of documents that GET of one answers with 503")
    remaining: list[str] = Field(description="ids for which the answer has no room: ask again")


class DeleteRequest(Body):
    """The documents to delete."""

    ids: list[Identifier] | None = Field(None, min_length=1, max_length=MOST_IDS, fail_fast=True)
    filter: Filter | None = Field(None, description="see docs/reference/api/search.md, Filters")
    dry_run: bool = Field(False, description="only count them")

    @model_validator(mode="after")
    def _ids_or_filter(self) -> DeleteRequest:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or filter")
        return self


class DeleteOut(BaseModel):
    """The deletion is durable."""

    deleted: int = Field(description="documents; with dry_run, those that would be deleted")


_MANY = (400, 401, 404, 408, 409, 413, 415, 422, 429, 503)


@_reading.post("/documents/get", **written(GetOut, *_MANY))
async def get_documents(request: Request, name: Name, body: GetRequest) -> Response:
    """Documents of up to 1,000 ids; an id that occurs twice counts once."""
    index = await inference.open_index(request, name)
    from service.index.query import listing

    room = request.scope[ROOM]
    found = await listing.read(
        index,
        list(dict.fromkeys(body.ids)),
        body.text,
        reserve=lambda characters: room.reach(memory.needed(characters)),
    )
    documents = [
        _head(head) | ({} if text is None else {"text": text}) for head, text in found.documents
    ]
    lists = {"missing": found.missing, "damaged": found.damaged, "remaining": found.remaining}
    return json_response({"documents": documents, **lists})


@_any.post("/delete", responses=documented(*_MANY))
async def delete_documents(request: Request, name: Name, body: DeleteRequest) -> DeleteOut:
    """Delete the documents of some ids, or all that pass a filter.

    It keeps a document that another client writes meanwhile. After a 504, some may be deleted.
    """
    store = inference.service_of(request).store
    if body.filter is not None or body.dry_run:
        # the count reveals metadata, or which documents exist
        rights.require(request, Right.READ_INDEXES, name)
    index = await (await store.indexes()).open(name)
    from service.index.query import listing

    if body.filter is None:
        held = await listing.versions(index, list(dict.fromkeys(body.ids or [])))
        if body.dry_run or not held:
            return DeleteOut(deleted=len(held))
        return DeleteOut(deleted=await store.delete_seen(name, index.identity.uid, held))
    where = compile_filter(body.filter, index.identity.fields)
    if body.dry_run:
        return DeleteOut(deleted=await listing.count_matching(index, where))
    deleted = 0
    async for some in listing.versions_matching(index, where):
        deleted += await store.delete_seen(name, index.identity.uid, some)
    return DeleteOut(deleted=deleted)


class PatchRequest(Body):
    """A JSON merge patch (RFC 7396): null removes a member, an omitted member stays."""

    title: Title = Field(None, json_schema_extra={"maxLength": fields.TITLE_CHARACTERS})
    metadata: Metadata | None = Field(None, description="null removes all keys")
    links: list[Identifier] | None = Field(
        None, max_length=10_000, fail_fast=True, description="replaces all links"
    )

    @model_validator(mode="before")
    @classmethod
    def _no_text(cls, value: Any) -> Any:
        if isinstance(value, dict) and "text" in value:
            raise ValueError("text: this route does not change texts: upsert the document")
        return value


class PatchOut(BaseModel):
    """The change is durable."""

    version: str = Field(description="the document's new version")


_CHANGES = (400, 401, 404, 408, 409, 413, 415, 422, 503)


@_any.patch("/{document_id:path}", **written(PatchOut, *_CHANGES, said="Durable.", more=_MISMATCH))
async def patch_document(
    request: Request,
    name: Name,
    document_id: DocumentId,
    body: PatchRequest,
    if_match: IfMatch = None,
) -> Response:
    """Change the title, metadata or links of a document. The service embeds nothing."""
    condition = of_stored(request, if_match)
    service = inference.service_of(request)
    indexes = await service.store.indexes()
    from service.index.documents import whole

    for _ in range(versions.ATTEMPTS):
        index = await indexes.open(name, still=True)
        await inference.reserve(request, index, document_id)
        record, updated = await whole(index, document_id)
        standing = versions.Standing(updated, deleted=False)
        if condition is not None and not versions.holds(condition, standing):
            return mismatch(VersionError({document_id: updated}), [document_id])
        written = await _write(service, name, index, _patched(index, record, body), updated)
        if written is not None:
            version = versions.text(written)
            return json_response({"version": version}, {"etag": f'"{version}"'})
    raise OvertakenError


def _patched(index: Index, record: Record, body: PatchRequest) -> Record:
    """The document after the change.

    Raises:
        InvalidError: the index cannot store it.
    """
    given = body.model_fields_set
    metadata = record.metadata
    if "metadata" in given:
        metadata = _merged(metadata, body.metadata)
        if wrong := fields.problem(metadata):
            raise InvalidError(f"metadata, after the change: {wrong}", "metadata")
        if wrong := fields.mistyped(index.identity.fields, metadata):
            raise InvalidError(wrong, "metadata")
    return replace(
        record,
        title=body.title if "title" in given else record.title,
        metadata=metadata,
        links=(body.links or []) if "links" in given else record.links,
    )


def _merged(metadata: dict[str, Any], patch: dict[str, Any] | None) -> dict[str, Any]:
    if patch is None:
        return {}
    removed = {key for key, value in patch.items() if value is None}
    return {key: value for key, value in (metadata | patch).items() if key not in removed}


async def _write(
    service: Service, name: str, index: Index, record: Record, updated: int
) -> int | None:
    """Write the document over the version that was read.

    Returns:
        The new version; None if another client wrote in between.
    """
    from service.index.commits import Upsert

    upsert = Upsert(await index.rows([record]), {record.id: frozenset([updated])})
    try:
        return (await service.store.upsert(name, index.identity.uid, upsert))[record.id]
    except (VersionError, OvertakenError):
        return None


router = APIRouter()
# the path of a document may end in /windows
router.include_router(_reading)
router.include_router(_any)
